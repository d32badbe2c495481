/**
 * Thrown if the server refused a request, and nothing was stored. `errCode` is JetStream's own number, such as 10071.
 */
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

/** Thrown if there was no answer: the request may or may not have taken effect. Repeat it only if that is safe. */
export class UnknownOutcomeError extends Error {
  override readonly name = 'UnknownOutcomeError'
}

/** Thrown after the connection was closed on purpose: no more requests will be answered. */
export class ConnectionClosedError extends Error {
  override readonly name = 'ConnectionClosedError'
}

/** The error codes in nats-server/server/errors.json. */
export const ERR = {
  wrongLastSequence: 10071,
  /** On a stream with replicas: another publish to that subject is in flight. */
  publishInFlight: 10164,
  noMessageFound: 10037,
  streamNotFound: 10059,
  streamNameInUse: 10058,
  consumerNotFound: 10014,
  tooManyConsumers: 10026,
  sequenceNotFound: 10043,
  deleteFailed: 10057,
  /** Not enough servers of the cluster are there. */
  noPeers: 10005,
  /** JetStream system temporarily unavailable: it has no leader. */
  unavailable: 10008,
} as const

/** Whether the expected last sequence did not match, so that nothing was stored. */
export const isWrongSequence = (error: unknown): boolean =>
  error instanceof JetStreamError && error.errCode === ERR.wrongLastSequence

/**
 * Whether the message to be deleted does not exist. The code differs between a message that was deleted before and one
 * that was acknowledged.
 */
export const isGone = (error: unknown): boolean =>
  error instanceof JetStreamError &&
  (error.errCode === ERR.sequenceNotFound ||
    (error.errCode === ERR.deleteFailed && error.message.endsWith('no message found')))

/** Whether there is no leader, no room, or no such stream. */
export const isUnanswered = (error: unknown): boolean => error instanceof JetStreamError && error.code === 503

/** Whether the same request may succeed later: there was no answer, or there is no leader now. */
export const isPassing = (error: unknown): boolean => error instanceof UnknownOutcomeError || isUnanswered(error)
