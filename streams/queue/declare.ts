import { type ConsumerConfig, DiscardPolicy, RetentionPolicy, StorageType, type StreamConfig } from '@nats-io/jetstream'
import type { RunLog } from '#contracts/log'
import { declareConsumer, declareStream, findStream, type JetStream, removeConsumer, UNLIMITED } from '#nats'
import type { QueueDeps } from './core.ts'
import { LANES, type Lane } from './record.ts'
import type { Names } from './wire.ts'

const MS = 1e6
/** The largest number of unacknowledged tokens: more than twice the slots of all processes together. */
const MAX_ACK_PENDING = 20_000
/** The largest number of waiting pull requests: each process has at most one per free slot. */
const MAX_WAITING = 10_000

/**
 * Two for each Reconciler. Without a limit of its own, a stream gets the default of nats-server, which is 1,000 since
 * 2.15: too few for 500 Reconcilers.
 */
const MAX_CONSUMERS = 100_000

/** Settings of the stream. Replicas left out: an existing stream keeps its number, a new stream gets one. */
interface WorkTerms {
  replicas?: 1 | 3
  /** True: an existing stream with fewer replicas gets this number. */
  raiseReplicas?: boolean
  log: RunLog
}

/** Creates or updates the stream, and returns its number of replicas afterwards. */
export async function declareWork(
  js: JetStream,
  names: Names,
  { replicas, raiseReplicas, log }: WorkTerms,
): Promise<number> {
  const config = { ...streamConfig(names), ...(replicas !== undefined && { num_replicas: replicas }) }
  const republish = { ...names.republished, headers_only: true }
  const found = await declareStream(js, config, { raiseReplicas, createdWith: { republish } })
  const { src, dest } = republish
  if (found.republish?.src !== src || found.republish.dest !== dest)
    log.warn(
      { stream: names.stream, republish: found.republish },
      'a flood of one namespace may hold up all others: the stream was made before namespaces had turns. Mend it with ' +
        `nats stream edit ${names.stream} --republish-source '${src}' --republish-destination '${dest}' --republish-headers`,
    )
  return found.num_replicas
}

/** Thrown if the stream of the queue does not exist: it has not been created yet, or it has another prefix. */
export class NoQueueError extends Error {
  override readonly name = 'NoQueueError'
}

/** Returns the number of replicas of the existing stream. Throws NoQueueError if there is none. */
export async function findWork(js: JetStream, names: Names): Promise<number> {
  const found = await findStream(js, names.stream)
  if (found === undefined) throw new NoQueueError(`NATS has no stream ${names.stream}`)
  return found.num_replicas
}

/**
 * Declares the two consumers of a Reconciler. New ones of a replicated stream keep their state in the memory of each
 * replica, without a file that is written at each change. A consumer that has lost its state delivers each token that the
 * stream still has. This is as safe as each second delivery, because the lease of a key decides. A single server would
 * lose the consumer itself.
 */
export async function declareConsumers(
  { js, names, ackWaitMs, replicas }: Pick<QueueDeps, 'js' | 'names' | 'ackWaitMs' | 'replicas'>,
  reconciler: string,
): Promise<void> {
  const createdWith = { mem_storage: replicas > 1 }
  for (const lane of LANES)
    await declareConsumer(js, names.stream, consumerConfig(names, reconciler, lane, ackWaitMs), createdWith)
}

/** Deletes the consumers of a Reconciler. Queued keys stay, and are delivered once the Reconciler is declared again. */
export async function deleteConsumers(js: JetStream, names: Names, reconciler: string): Promise<void> {
  for (const lane of LANES) await removeConsumer(js, names.stream, names.consumer(reconciler, lane))
}

/** Returns the Reconcilers that have consumers. Their names are read from the names of the consumers. */
export async function declaredReconcilers(js: JetStream, names: Names): Promise<string[]> {
  const found = new Set<string>()
  for await (const { name } of js.admin.consumers.list(names.stream)) {
    const reconciler = names.reconcilerOf(name)
    if (reconciler !== undefined) found.add(reconciler)
  }
  return [...found].sort()
}

/**
 * Returns the number of waiting pull requests for keys of a Reconciler. A process with a free slot has at least one.
 */
export async function waitingRequests(js: JetStream, names: Names, reconciler: string): Promise<number> {
  let waiting = 0
  for await (const { name, num_waiting } of js.admin.consumers.list(names.stream))
    if (names.reconcilerOf(name) === reconciler) waiting += num_waiting
  return waiting
}

function streamConfig(names: Names): Partial<StreamConfig> & { name: string } {
  return {
    name: names.stream,
    subjects: names.subjects,
    retention: RetentionPolicy.Workqueue,
    storage: StorageType.File,
    max_msgs_per_subject: 1,
    max_consumers: MAX_CONSUMERS,
    discard: DiscardPolicy.Old,
    ...UNLIMITED,
    duplicate_window: 120_000 * MS,
    allow_msg_schedules: true,
    allow_msg_ttl: true,
    allow_direct: true,
  }
}

function consumerConfig(
  names: Names,
  reconciler: string,
  lane: Lane,
  ackWaitMs: number,
): Partial<ConsumerConfig> & { durable_name: string } {
  return {
    durable_name: names.consumer(reconciler, lane),
    filter_subject: names.tokensOf(reconciler, lane),
    ack_policy: 'explicit',
    ack_wait: ackWaitMs * MS,
    max_deliver: -1,
    max_ack_pending: MAX_ACK_PENDING,
    max_waiting: MAX_WAITING,
  }
}
