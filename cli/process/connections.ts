import type { Logger } from 'pino'
import { type DeadLetters, type EventStore, openDeadLetters, openEventStore, type StoredEventReport } from '#events'
import { ApiConnectionError, type KubeClient } from '#kube'
import { type JetStream, NatsUnreachableError } from '#nats'
import { retry } from '#primitives'
import { openQueue, type QueueObserver, type SlotShare, type WorkQueue } from '#queue'
import type { Config } from './config.ts'
import { UsageError } from './exit.ts'
import { clusterId } from './kube.ts'
import type { CertificateObserver } from './metrics.ts'
import { openJetStream, prefixOf, queueOptions, reportConnection } from './nats.ts'

export interface Streams extends AsyncDisposable {
  js: JetStream
  events: EventStore
  queue: WorkQueue
  dead: DeadLetters
}

export interface StreamsOptions {
  /** Keys that the process holds at the same time. */
  slots?: number | SlotShare | undefined
  /** The memory limit of the indexes of related objects, in bytes. Default 128 MiB. */
  indexBytes?: (() => number) | undefined
  /** Raises the replicas of existing streams to the configured number. Needs the permission to update them. */
  raiseReplicas?: boolean
  observer?: QueueObserver
  /** Called after this process has stored the event of an object. */
  stored?: (event: StoredEventReport) => void
  certificates?: CertificateObserver
}

/** Opens EVENTS, WORK and DEAD; creates them on first use. */
export async function openStreams(
  config: Config,
  kube: KubeClient,
  role: string,
  log: Logger,
  { slots, indexBytes, raiseReplicas = false, observer, stored, certificates }: StreamsOptions = {},
): Promise<Streams> {
  const cluster = await clusterId(kube)
  const js = await openJetStream(config, role, { certificates })
  reportRefusals(js, log)
  reportConnection(js, log)
  const wish = { replicas: config.FAIRLEAD_REPLICAS, raiseReplicas }
  try {
    const dead = await openDeadLetters(js, { ...prefixOf(config), ...wish, cluster, log })
    const [events, queue] = await Promise.all([
      openEventStore(js, {
        ...prefixOf(config),
        ...wish,
        cluster,
        log,
        deadLetter: (found) => dead.put(found),
        referenceOnly: config.FAIRLEAD_REFERENCE_ONLY,
        maxBytes: config.FAIRLEAD_EVENTS_MAX_BYTES,
        ...(indexBytes && { indexBytes }),
        ...(stored && { stored }),
      }),
      openQueue(js, {
        ...queueOptions(config, log),
        ...wish,
        slots,
        ...(observer && { observer }),
      }),
    ])
    return { js, events, queue, dead, [Symbol.asyncDispose]: () => js.close() }
  } catch (error) {
    await js.close()
    const why = settingRefused(error, config)
    throw why === undefined ? error : new UsageError(why, { cause: error })
  }
}

/** The message for a setting that NATS cannot fulfil. */
function settingRefused(error: unknown, { FAIRLEAD_EVENTS_MAX_BYTES: maxBytes }: Config): string | undefined {
  const message = error instanceof Error ? error.message : ''
  if (message.includes('replicas > 1'))
    return 'FAIRLEAD_REPLICAS is 3, but this NATS is a single server: set it to 1, or use a cluster of three'
  if (maxBytes !== undefined && message.includes('insufficient storage resources'))
    return `FAIRLEAD_EVENTS_MAX_BYTES is ${maxBytes} bytes, more than NATS has: make it less than max_file of nats-server`
  return undefined
}

/** Logs refused requests. NATS does not answer them, so without this log line nothing shows why a request waits. */
function reportRefusals(js: JetStream, log: Logger): void {
  js.onRefusal(({ operation, subject }) => log.error({ operation, subject }, 'NATS refuses: not permitted'))
}

const PAUSE_MS = 500

/** Calls `open` until the servers that it needs answer: at least once, and for this number of seconds. */
export function retryWhileUnreachable<T>(seconds: number, log: Logger, open: () => Promise<T>): Promise<T> {
  const end = performance.now() + seconds * 1000
  const pauseMs = (error: unknown): number | undefined => {
    const isAway = error instanceof NatsUnreachableError || error instanceof ApiConnectionError
    if (!isAway || performance.now() + PAUSE_MS > end) return undefined
    log.warn({ because: error.message }, 'not there yet, trying again')
    return PAUSE_MS
  }
  return retry(open, { pauseMs })
}
