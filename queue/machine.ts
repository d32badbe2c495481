import type { Answer, Io } from './record.ts'

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
