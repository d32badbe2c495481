/** The words of the queue that those need who plan runs: nothing here loads a client of NATS. */
export { type BackoffTerms, backoffMs } from './backoff.ts'
export { dated, dueDate } from './due.ts'
export { messageOf } from './message-of.ts'
export type { Due, Finish } from './types.ts'
