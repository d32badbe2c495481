/** The words of the queue that those need who plan runs: nothing here loads a client of NATS. */
export { type BackoffTerms, backoffMs } from './backoff.ts'
export { type Due, dated, dueDate } from './due.ts'
export { messageOf } from './message-of.ts'
export type { Finish } from './types.ts'
