import type { Answer, Io, KeyRecord, NewRecord } from './record.ts'

/**
 * A transition of the protocol as a value. Between two answers, the step holds the whole state, so a crash is the same
 * as dropping the step. `now` is the server's time; the input holds all identities; machines do no IO.
 */
export interface Machine<Input, State extends { io: Io }, Result> {
  start(input: Input, now: number): State | Ended<Result>
  next(step: State, answer: Answer, now: number): State | Ended<Result>
}

export interface Ended<Result> {
  result: Result
}

export const end = <Result>(result: Result): Ended<Result> => ({ result })

/**
 * Performs the IO that the machine requests until the machine has a result. Waits where the server's time must be
 * measured first.
 */
export async function drive<Input, State extends { io: Io }, Result>(
  machine: Machine<Input, State, Result>,
  input: Input,
  perform: (io: Io) => Promise<Answer>,
  now: () => number | Promise<number>,
): Promise<Result> {
  let time = now()
  let step = machine.start(input, typeof time === 'number' ? time : await time)
  while ('io' in step) {
    const answer = await perform(step.io)
    time = now()
    step = machine.next(step, answer, typeof time === 'number' ? time : await time)
  }
  return step.result
}

/** Thrown if the shell gave an answer that does not belong to the requested IO. */
export class UnexpectedAnswerError extends Error {
  override readonly name = 'UnexpectedAnswerError'
  constructor(step: { name: string; io: Io }, answer: Answer) {
    super(`step ${step.name} asked to ${step.io.do} and cannot go on from the answer ${answer.kind}`)
  }
}

/** The settings that all transitions of one queue share. */
export interface Terms {
  leaseMs: number
  /**
   * True: the stream has replicas, or may get them now. A confirmed acknowledgement then does not yet mean that the
   * token is gone.
   */
  readonly replicated: boolean
}

/** A key that this process holds, with its record as this process last knew it. */
export interface HeldKey {
  record: KeyRecord
  /** The number of generations that this owner has written or tried to write. */
  writes: number
}

/** Returns the error of the clocks that a lease tolerates, in milliseconds. */
export const clockTolerance = ({ leaseMs }: Terms): number => leaseMs / 20

/**
 * Returns the server's time after which the holder writes nothing more. It is earlier than the server's watchdog,
 * whatever the error of the clocks within the tolerance.
 */
export const leaseEnd = (record: Pick<KeyRecord, 'at'>, terms: Terms): number => record.at - clockTolerance(terms)

/** Whether the lease has too little time left to begin a run. */
export const nearlyOver = (record: Pick<KeyRecord, 'at'>, { leaseMs }: Terms, now: number): boolean =>
  now > record.at - leaseMs / 5

/**
 * Returns a new name for each write of an owner, so that a schedule that fires or is cancelled belongs to exactly one
 * write. The first letter is the state.
 */
export const generationOf = (state: KeyRecord['state'], writer: string, write: number): string =>
  `${state.charAt(0)}-${writer}-${write}`

export const isRunOf = (record: KeyRecord, owner: string): boolean =>
  record.state === 'running' && record.owner === owner

/** Returns the record without the fields that the next write replaces. */
export function withoutSequence(record: KeyRecord): NewRecord {
  const copy: NewRecord & { sequence?: number } = { ...record }
  delete copy.sequence
  return copy
}
