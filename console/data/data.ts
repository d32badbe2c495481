import type { Logger } from 'pino'
import type { KubeObject, RunRecord } from '#contracts'
import { type DeadLetter, NoRunsError, type StoredRun } from '#events'
import type { Config } from '#host/config'
import { EXIT, exitCodeOf, oneLine } from '#host/exit'
import { openKube } from '#host/kube'
import {
  type ExistingStreams,
  gather,
  openExistingStreams,
  reconcilersIn,
  reconcilersOf,
  runsOf,
  type Situation,
  type Target,
  targetOf,
} from '#inspect'
import { isNotFound, type KubeClient, type RequestReport, type ServedResource, servedResources } from '#kube'
import { mapAtMost } from '#primitives'
import type { Depth } from '#queue'
import { shardOf } from '#spec'
import { BusyError, Cache } from './cache.ts'
import { type Connection, connectionTo } from './connection.ts'
import { type EventFeed, eventFeed } from './event-feed.ts'
import { type QueueSnapshot, queueReader } from './queue.ts'
import { type RunsSelection, recentRuns } from './recent-runs.ts'

/** A server that a page needs does not answer, or this console does not read for the person now. */
export class AwayError extends Error {
  override readonly name = 'AwayError'
  readonly server: 'NATS' | 'The API server' | 'The console'

  constructor(server: AwayError['server'], why: string) {
    super(why)
    this.server = server
  }
}

/** Returns an error of a server as one that pages show; undefined: it is another error. */
export function awayIn(error: unknown): AwayError | undefined {
  if (error instanceof AwayError) return error
  if (error instanceof BusyError) return new AwayError('The console', error.message)
  const code = exitCodeOf(error)
  const server = code === EXIT.kubernetes ? 'The API server' : code === EXIT.nats ? 'NATS' : undefined
  return server && new AwayError(server, oneLine((error as Error).message))
}

/** What a Reconciler has in WORK. */
export interface ReconcilerCounts {
  depth: Depth
  /** The key that is queued longest; undefined: none is. */
  oldest: Date | undefined
  isServed: boolean
}

export interface Asked {
  kind: string
  namespace: string | undefined
  name: string
}

/** What pages show. Each read is bounded, shared by all tabs, and the more seldom the more it costs. */
export interface Data {
  /** The same data, for the reads of one person, who has a limit of his own. */
  of(person: string): Data
  nats(): Promise<ExistingStreams>
  kube(): Promise<KubeClient>
  /** Undefined: it answers. */
  natsAway(): Promise<string | undefined>
  kubeAway(): Promise<string | undefined>
  /** From EVENTS, or from the API server while NATS is away. */
  reconcilers(): Promise<KubeObject[]>
  /** The kinds of the API server; undefined while it is away. */
  served(): Promise<ServedResource[] | undefined>
  /** The names of all queues, with and without a Reconciler. */
  queues(): Promise<string[]>
  /** Reads the counts of the Reconcilers that have a queue. */
  counts(reconcilers: readonly string[]): Promise<ReadonlyMap<string, ReconcilerCounts>>
  /** The keys of one reconciler, or of all. */
  queue(reconciler?: string): Promise<QueueSnapshot>
  /** The newest first. */
  recentRuns(selection: RunsSelection): Promise<StoredRun[]>
  /** The runs of one object, the newest first. */
  runsOf(of: Pick<RunRecord, 'reconciler' | 'namespace' | 'name'>): Promise<StoredRun[]>
  run(sequence: number): Promise<StoredRun | undefined>
  /** What the names mean, without a look at the object. */
  target(asked: Asked): Promise<Target>
  situation(asked: Asked): Promise<Situation>
  /** The newest first. */
  letters(): Promise<DeadLetter[]>
  events: EventFeed
  /** After a write, the next read shows it. */
  forget(): void
  close(): Promise<void>
}

/** Kinds come and go seldom. */
const SERVED_MS = 10_000
/** The counts of 50 Reconcilers are read in a second at most. */
const COUNT_MS = 20
const COUNTS_AT_ONCE = 8
const LETTERS = 500
const READS_OF_A_SITUATION = 10

interface DataOptions {
  /** The name of the inbox of the connection to NATS. */
  role?: string
  /** Called for each request to the API server. */
  onRequest?: ((request: RequestReport) => void) | undefined
}

export function openData(settings: Config, log: Logger, { role, onRequest }: DataOptions = {}): Data {
  const kube = connectionTo<KubeClient>({
    open: async () => {
      const client = await openKube(settings, onRequest)
      await client.text('/version')
      return client
    },
    check: (client) => client.text('/version'),
    close: (client) => client.close(),
  })
  const nats = connectionTo<ExistingStreams & AsyncDisposable>({
    open: () => openExistingStreams(settings, log, role),
    check: ({ js }) => js.nc.flush(),
    close: async (streams) => {
      await streams[Symbol.asyncDispose]()
    },
  })
  const shared = new Cache()
  const readQueue = queueReader()
  const demandNats = () => demand(nats, 'NATS')
  const demandKube = () => demand(kube, 'The API server')
  const feed = eventFeed(async () => (await demandNats()).view)

  const dataOf = (cache: Pick<Cache, 'get'>): Data => {
    const data: Data = {
      of: (person) => dataOf({ get: (key, ms, load, options) => shared.get(key, ms, load, { ...options, person }) }),
      nats: demandNats,
      kube: demandKube,
      natsAway: () => why(nats),
      kubeAway: () => why(kube),
      reconcilers: () =>
        cache.get('reconcilers', 1000, async () => {
          const streams = await nats.now()
          const all = await (typeof streams === 'string'
            ? reconcilersOf(await demandKube()).catch(noneIfNotFound)
            : reconcilersIn(streams.view))
          return all.filter((one) => shardOf(one) === (settings.FAIRLEAD_SHARD ?? ''))
        }),
      served: () =>
        cache.get('served', SERVED_MS, async () => {
          const client = await kube.now()
          return typeof client === 'string' ? undefined : servedResources(client)
        }),
      queues: () => cache.get('queues', 1000, async () => (await demandNats()).queue.reconcilers()),
      counts: (reconcilers) =>
        cache.get('counts', Math.max(500, reconcilers.length * COUNT_MS), async () =>
          countsOf(await demandNats(), reconcilers),
        ),
      queue: (reconciler) =>
        cache.get(`queue ${reconciler ?? ''}`, 250, async () => readQueue(await demandNats(), reconciler)),
      recentRuns: (selection) =>
        cache.get(`runs ${JSON.stringify(selection)}`, 500, async () =>
          unlessNone(recentRuns((await demandNats()).runs, selection)),
        ),
      runsOf: (of) =>
        cache.get(`runs of ${JSON.stringify([of.reconciler, of.namespace, of.name])}`, 500, async () => {
          const { runs } = await demandNats()
          return (await unlessNone(runsOf(runs, of))).reverse()
        }),
      run: (sequence) =>
        cache.get(`run ${sequence}`, 1000, async () => (await demandNats()).runs.get(sequence).catch(undefinedIfNone)),
      target: (asked) =>
        cache.get(`target ${JSON.stringify(asked)}`, 1000, async () => {
          const streams = await nats.now()
          const all = await data.reconcilers()
          return targetOf(asked, all, await data.served(), typeof streams === 'string' ? undefined : streams)
        }),
      situation: (asked) =>
        cache.get(
          `object ${JSON.stringify(asked)}`,
          1000,
          async () => gather(asked, { kube: await kube.now(), streams: await nats.now() }, () => new Date()),
          { weight: READS_OF_A_SITUATION },
        ),
      letters: () => cache.get('letters', 1000, async () => lettersIn(await demandNats())),
      events: feed,
      forget: () => shared.clear(),
      async close() {
        feed.close()
        await Promise.all([kube.close(), nats.close()])
      },
    }
    return data
  }
  return dataOf(shared)
}

async function demand<T>(connection: Connection<T>, server: AwayError['server']): Promise<T> {
  const found = await connection.now()
  if (typeof found === 'string') throw new AwayError(server, found)
  return found
}

async function why(connection: Connection<unknown>): Promise<string | undefined> {
  const found = await connection.now()
  return typeof found === 'string' ? found : undefined
}

async function countsOf(
  { queue }: ExistingStreams,
  reconcilers: readonly string[],
): Promise<Map<string, ReconcilerCounts>> {
  const queues = new Set(await queue.reconcilers())
  const counts = await mapAtMost(
    COUNTS_AT_ONCE,
    reconcilers.filter((name) => queues.has(name)),
    async (name): Promise<[string, ReconcilerCounts]> => {
      const [depth, { oldest }, isServed] = await Promise.all([
        queue.depth(name),
        queue.backlog(name),
        queue.isServed(name),
      ])
      return [name, { depth, oldest, isServed }]
    },
  )
  return new Map(counts)
}

/** Nothing is installed yet. */
const noneIfNotFound = (error: unknown): [] => {
  if (!isNotFound(error)) throw error
  return []
}

const undefinedIfNone = (error: unknown): undefined => {
  if (!(error instanceof NoRunsError)) throw error
  return undefined
}

const unlessNone = async (runs: Promise<StoredRun[]>): Promise<StoredRun[]> => (await runs.catch(undefinedIfNone)) ?? []

async function lettersIn({ dead }: ExistingStreams): Promise<DeadLetter[]> {
  const found: DeadLetter[] = []
  for await (const letter of dead.list()) {
    found.push(letter)
    if (found.length > LETTERS) found.shift()
  }
  return found.reverse()
}
