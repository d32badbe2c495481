import { type ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, type StreamConfig } from '@nats-io/jetstream'
import type { Names } from './names.ts'
import type { Lane } from './record.ts'

const MS = 1e6

export function streamConfig(names: Names, replicas: number): Partial<StreamConfig> & { name: string } {
  return {
    name: names.stream,
    subjects: names.subjects,
    retention: RetentionPolicy.Workqueue,
    storage: StorageType.File,
    num_replicas: replicas,
    max_msgs_per_subject: 1,
    discard: DiscardPolicy.Old,
    max_age: 0,
    duplicate_window: 120_000 * MS,
    allow_msg_schedules: true,
    allow_msg_ttl: true,
    allow_direct: true,
  }
}

/** Above twice the slots of all processes together. */
const MAX_ACK_PENDING = 20_000
/** Pull requests that wait: at most one per free slot. */
const MAX_WAITING = 10_000

export function consumerConfig(
  names: Names,
  fn: string,
  lane: Lane,
  ackWaitMs: number,
): Partial<ConsumerConfig> & { durable_name: string } {
  return {
    durable_name: names.consumer(fn, lane),
    filter_subject: names.tokensOf(fn, lane),
    ack_policy: 'explicit',
    ack_wait: ackWaitMs * MS,
    max_deliver: -1,
    max_ack_pending: MAX_ACK_PENDING,
    max_waiting: MAX_WAITING,
  }
}
