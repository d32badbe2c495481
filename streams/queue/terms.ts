import { inspect } from 'node:util'
import type { ServerClock } from './clock.ts'
import type { Ending } from './finish.ts'
import type { Due, Finish, HandBack } from './types.ts'

export type { Due, Finish } from './types.ts'
export { type BackoffTerms, backoffMs } from './types.ts'

/** Exports of the queue for code that plans runs. Nothing here loads a NATS client. */

/** Returns the due time by the wall clock. A delay begins at `now`. */
export const dueDate = (due: Due, now: Date): Date =>
  due instanceof Date ? due : new Date(now.getTime() + due.afterMs)

/** Returns the finish with dates instead of delays, for logs and answers that users read. */
export function dated(finish: Finish, now: Date): Finish<Date> {
  if (finish.kind === 'requeue') return { ...finish, at: dueDate(finish.at, now) }
  return finish.kind === 'error' ? { ...finish, retryAt: dueDate(finish.retryAt, now) } : finish
}

const isTime = (due: Due): boolean => !Number.isNaN(due instanceof Date ? due.getTime() : due.afterMs)

/** Returns the finish unchanged. Throws if it asks for an invalid time. */
export function timely<Ended extends Finish | HandBack>(finish: Ended): Ended {
  const due = finish.kind === 'requeue' ? finish.at : finish.kind === 'error' ? finish.retryAt : undefined
  if (due !== undefined && !isTime(due)) throw new Error(`the run ended in ${finish.kind} at no valid time`)
  return finish
}

/** Returns a function that gives the ending in the server's time. Delays count from this call of endingOf. */
export function endingOf(finish: Finish | HandBack, clock: ServerClock): () => Ending {
  const endedAt = performance.now()
  const timeOf = (due: Due) =>
    due instanceof Date ? clock.at(due) : clock.now() + due.afterMs - (performance.now() - endedAt)
  return () => {
    if (finish.kind === 'requeue') return { kind: 'requeue', at: timeOf(finish.at) }
    if (finish.kind !== 'error') return finish
    const { retryAt, isCounted = true, ...error } = finish
    return { ...error, at: timeOf(retryAt), isCounted }
  }
}

/** Returns the message of a thrown value. A function can throw any value, also one that String() cannot convert. */
export const messageOf = (thrown: unknown): string => {
  if (thrown instanceof Error) return thrown.message
  return typeof thrown === 'string' ? thrown : inspect(thrown)
}
