/** The server refused, and nothing was stored. `errCode` is JetStream's own number, e.g. 10071. */
export class JetStreamError extends Error {
  override readonly name = 'JetStreamError'
  readonly code: number
  readonly errCode: number
  constructor(message: string, code: number, errCode: number) {
    super(message)
    this.code = code
    this.errCode = errCode
  }
}

/** No answer: the request may or may not have taken effect. Repeat it only if repeating is harmless. */
export class UnknownOutcomeError extends Error {
  override readonly name = 'UnknownOutcomeError'
}

/** The connection was closed on purpose; nothing will be answered any more. */
export class ConnectionClosedError extends Error {
  override readonly name = 'ConnectionClosedError'
}

/** nats-server/server/errors.json */
export const ERR = {
  wrongLastSequence: 10071,
  /** R3: another publish to that subject is in flight. */
  publishInFlight: 10164,
  noMessageFound: 10037,
  streamNotFound: 10059,
  streamNameInUse: 10058,
  consumerNotFound: 10014,
  sequenceNotFound: 10043,
  deleteFailed: 10057,
  /** JetStream system temporarily unavailable: it has no leader. */
  unavailable: 10008,
} as const

/** The expected last sequence did not hold; nothing was stored. */
export const isWrongSequence = (error: unknown): boolean =>
  error instanceof JetStreamError && error.errCode === ERR.wrongLastSequence

/** The message to be deleted is not there: one number where it was deleted before, another where it was acknowledged. */
export const isGone = (error: unknown): boolean =>
  error instanceof JetStreamError &&
  (error.errCode === ERR.sequenceNotFound ||
    (error.errCode === ERR.deleteFailed && error.message.endsWith('no message found')))

/** There is no leader, no room, or no such stream. */
export const isUnanswered = (error: unknown): boolean => error instanceof JetStreamError && error.code === 503

/** No answer, or no leader just now: the same request may be answered later. */
export const isPassing = (error: unknown): boolean => error instanceof UnknownOutcomeError || isUnanswered(error)
