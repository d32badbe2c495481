import type { Logger } from 'pino'
import {
  type DeadLetters,
  type EventsView,
  openDeadLetters,
  type RunsView,
  type UsageView,
  viewEvents,
  viewRuns,
  viewUsage,
} from '#events'
import type { JetStream } from '#nats'
import type { Config } from '#process/config'
import { UsageError } from '#process/exit'
import { createLogger } from '#process/logging'
import { openJetStream, prefixOf, queueOptions, reportConnection } from '#process/nats'
import { NoQueueError, openQueue, type WorkQueue } from '#queue'

export interface ExistingStreams {
  js: JetStream
  /** The shard whose streams these are; '' is the installation without a shard. */
  shard: string
  queue: WorkQueue
  dead: DeadLetters
  /** A view of EVENTS. Its methods reject if the stream does not exist. */
  view: EventsView
  /** A view of RUNS. Its methods reject if the stream does not exist. */
  runs: RunsView
  /** A view of USAGE. Its methods reject if the stream does not exist. */
  usage: UsageView
}

/** Opens the existing queue and dead letters for a command that only reads them. Rejects if they were never created. */
export async function withExistingStreams(
  { config }: { config: () => Promise<Config> },
  work: (existing: ExistingStreams) => Promise<void>,
): Promise<void> {
  const settings = await config()
  await using existing = await openExistingStreams(settings, await createLogger(settings))
  await work(existing)
}

/** `role` names the inbox of the connection; the permissions of the NATS user must allow the same name. */
export async function openExistingStreams(
  config: Config,
  log: Logger,
  role = 'queue',
): Promise<ExistingStreams & AsyncDisposable> {
  const js = await openJetStream(config, role)
  reportConnection(js, log)
  try {
    const queue = await openQueue(js, { ...queueOptions(config, log), create: false })
    const dead = await openDeadLetters(js, { ...prefixOf(config), cluster: '', log, create: false })
    const view = viewEvents(js, { prefix: config.FAIRLEAD_PREFIX, log })
    const runs = viewRuns(js, config.FAIRLEAD_PREFIX)
    const usage = viewUsage(js, config.FAIRLEAD_PREFIX)
    const shard = config.FAIRLEAD_SHARD ?? ''
    return { js, shard, queue, dead, view, runs, usage, [Symbol.asyncDispose]: () => js.close() }
  } catch (error) {
    await js.close()
    if (!(error instanceof NoQueueError)) throw error
    const hint = 'fairlead up makes it; or is this another NATS (--nats), or another --prefix or --shard?'
    throw new UsageError(`${error.message} at ${js.nc.getServer()}: ${hint}`, { cause: error })
  }
}
