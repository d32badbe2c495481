/** Exports of the queue for code that plans runs. Nothing here loads a NATS client. */
export { type BackoffTerms, backoffMs } from './backoff.ts'
export { dated, dueDate } from './due.ts'
export { messageOf } from './message-of.ts'
export type { Due, Finish } from './types.ts'
