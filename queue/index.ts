export { type BackoffTerms, backoffMs } from './backoff.ts'
export type { RetryOutcome, WithdrawOutcome } from './by-hand.ts'
export { NoQueueError } from './declare.ts'
export { dated, dueDate } from './due.ts'
export { messageOf } from './message-of.ts'
export { InvalidNameError } from './names.ts'
export type { Lane } from './record.ts'
export {
  type Announced,
  type Backlog,
  type Depth,
  type Due,
  type Entry,
  type Finish,
  type HandBack,
  type KeyOf,
  type Lease,
  LeaseLostError,
  type QueueObserver,
  type Safety,
  type ServeOptions,
  type Worker,
} from './types.ts'
export { openQueue, type QueueOptions, type WorkQueue } from './work-queue.ts'
