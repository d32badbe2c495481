export { NoQueueError } from './declare.ts'
export { BY_HAND } from './intervene.ts'
export { isTriggered, type Lane, triggerCause } from './record.ts'
export { SharedSlots, type SlotShare } from './shared-slots.ts'
export { dated, dueDate, messageOf } from './terms.ts'
export {
  type Announced,
  type Backlog,
  type BackoffTerms,
  backoffMs,
  type Depth,
  type Due,
  type Entry,
  type Finish,
  type HandBack,
  type KeyOf,
  type Lease,
  LeaseLostError,
  type QueueObserver,
  type RunRate,
  type Safety,
  type ServeOptions,
  type Worker,
} from './types.ts'
export { InvalidNameError } from './wire.ts'
export type { RetryOutcome, WithdrawOutcome } from './work-queue.ts'
export { openQueue, type QueueOptions, type WorkQueue } from './work-queue.ts'
