import { LRUCache } from 'lru-cache'
import type { Logger } from 'pino'
import type { KubeObject, ResourceRef, RunRecord, RunResult } from '#contracts'
import {
  type DeadLetter,
  isPresent,
  NoRunsError,
  NoUsageError,
  type RunsView,
  type StoredRun,
  type UsageRow,
} from '#events'
import {
  type Asked,
  conditionOf,
  type ExistingStreams,
  gather,
  openExistingStreams,
  orphansIn,
  type Row,
  reconcilersIn,
  reconcilersOf,
  runsOf,
  type Situation,
  storedObject,
  type Target,
  targetOf,
  toRow,
  usageSince,
  wordsOf,
} from '#inspect'
import { isNotFound, type KubeClient, type RequestReport, type ServedResource, servedResources } from '#kube'
import { mapAtMost } from '#primitives'
import type { Config } from '#process/config'
import { EXIT, exitCodeOf, oneLine } from '#process/exit'
import { openKube } from '#process/kube'
import type { Depth } from '#queue'
import { RECONCILED } from '#reconcile'
import { shardOf } from '#spec'
import { BusyError, Cache } from './cache.ts'
import { type EventFeed, eventFeed } from './event-feed.ts'

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
  /** What all processes used in this time before now, by function and namespace. */
  usage(ms: number): Promise<UsageRow[]>
  /** What the names mean, without a look at the object. */
  target(asked: Asked): Promise<Target>
  situation(asked: Asked): Promise<Situation>
  /** Since when the runs of the object fail, by its condition or its recorded runs. Undefined: neither shows it. */
  failingSince(reconciler: string, of: Pick<Target, 'ref' | 'namespace' | 'name'>): Promise<string | undefined>
  /** Objects of these kinds whose condition Ready is not True, as EVENTS has them. */
  unready(kinds: readonly ResourceRef[]): Promise<UnreadySnapshot>
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
/** The beginning of a failure changes only with its end. */
const SINCE_MS = 5000
const READS_OF_A_SITUATION = 10
/** Processes store their usage once a minute. */
const USAGE_MS = 30_000
/** Who is not ready for minutes is so a few seconds later too. */
const UNREADY_MS = 10_000

interface DataOptions {
  /** The name of the inbox of the connection to NATS. */
  role?: string
  /** Called for each request to the API server. */
  onRequest?: (request: RequestReport) => void
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
      usage: (ms) =>
        cache.get(
          `usage ${ms}`,
          USAGE_MS,
          async () => {
            const now = new Date()
            const rows = usageSince((await demandNats()).usage, new Date(now.getTime() - ms), now)
            return (await rows.catch(undefinedIfNone)) ?? []
          },
          { weight: READS_OF_A_SITUATION },
        ),
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
      failingSince: (reconciler, of) =>
        cache.get(`failing ${JSON.stringify([reconciler, of])}`, SINCE_MS, async () => {
          const condition = conditionOf(await storedObject((await demandNats()).view, of), RECONCILED)
          const { namespace, name } = of
          const runs = await data.runsOf({ reconciler, ...(namespace !== undefined && { namespace }), name })
          const success = runs.findIndex(({ record }) => /^(?:success|requeue_after)$/.test(record.result))
          const first = (success === -1 ? runs : runs.slice(0, success)).at(-1)?.record.endedAt
          // RUNS keeps the last 20 runs, and a function that throws sets no condition.
          const shown = condition?.status === 'False' ? condition.lastTransitionTime : undefined
          return [first, shown].filter((time) => time !== undefined).sort((a, b) => Date.parse(a) - Date.parse(b))[0]
        }),
      unready: (kinds) =>
        cache.get(
          `unready ${JSON.stringify(kinds)}`,
          UNREADY_MS,
          async () => unreadyIn((await demandNats()).view, kinds),
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
  if (!(error instanceof NoRunsError || error instanceof NoUsageError)) throw error
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

/** How long an answer is believed: nothing is asked more often, however many tabs there are. */
const CHECK_MS = 1000
const ANSWERS_WITHIN_MS = 2000

interface Connection<T> {
  /** Resolves with the connected server, or the reason why it is away. */
  now(): Promise<T | string>
  close(): Promise<void>
}

interface Way<T> {
  open: () => Promise<T>
  /** Rejects where the other side does not answer. */
  check: (opened: T) => Promise<unknown>
  close: (opened: T) => Promise<unknown>
}

/** A server that may be away at first, go away, and come back. */
function connectionTo<T>({ open, check, close }: Way<T>): Connection<T> {
  let opened: T | undefined
  let opening: Promise<T> | undefined
  let checkedAt = Number.NEGATIVE_INFINITY
  let checking: Promise<string | undefined> | undefined

  // One that takes long goes on behind the answer that it is away.
  const connect = async (): Promise<T> => {
    opening ??= open().finally(() => {
      opening = undefined
    })
    return (opened = await opening)
  }
  const look = async (): Promise<string | undefined> => {
    try {
      await inTime(opened === undefined ? connect() : check(opened))
      return undefined
    } catch (error) {
      return oneLine(error instanceof Error ? error.message : String(error))
    } finally {
      checkedAt = performance.now()
    }
  }
  return {
    async now() {
      if (performance.now() - checkedAt > CHECK_MS || checking === undefined) {
        checkedAt = performance.now()
        checking = look()
      }
      const away = await checking
      return away ?? opened ?? 'not connected yet'
    },
    async close() {
      await opening?.catch(() => undefined)
      if (opened !== undefined) await close(opened)
    },
  }
}

/** Rejects when the answer does not come in time. */
async function inTime<T>(work: Promise<T>, ms = ANSWERS_WITHIN_MS): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error(`no answer within ${ms / 1000} s`)), ms)
  return Promise.race([work, late.promise]).finally(() => clearTimeout(timer))
}

/** Snapshots that are kept. */
const READ = 8
/** Keys that are read. The page states when there are more. */
const MOST = 20_000

interface QueueSnapshot {
  rows: readonly Row[]
  /** There are more. */
  isCut: boolean
}

/** Reads every key that is queued, running, waiting or parked, of one reconciler or of all. */
async function readQueue({ queue, view }: ExistingStreams, reconciler: string | undefined): Promise<QueueSnapshot> {
  const rows: Row[] = []
  const which = reconciler === undefined ? {} : { reconciler }
  for await (const entry of queue.list({ ...which, limit: MOST + 1 })) rows.push(toRow(entry))
  const orphans = orphansIn(view)
  for (const [name, own] of Map.groupBy(rows, (row) => row.reconciler))
    if (await orphans.isGone(name)) for (const row of own) row.orphaned = true
  return { rows: rows.slice(0, MOST), isCut: rows.length > MOST }
}

/** Reads the queue again only after WORK has changed: while nothing happens, a look costs one small request. */
function queueReader(): (streams: ExistingStreams, reconciler: string | undefined) => Promise<QueueSnapshot> {
  const read = new LRUCache<string, { mark: string; snapshot: QueueSnapshot }>({ max: READ })
  return async (streams, reconciler) => {
    const { state } = await streams.js.admin.streams.info(streams.queue.stream)
    const mark = JSON.stringify([state.first_seq, state.last_seq, state.messages])
    const known = read.get(reconciler ?? '')
    if (known?.mark === mark) return known.snapshot
    const snapshot = await readQueue(streams, reconciler)
    read.set(reconciler ?? '', { mark, snapshot })
    return snapshot
  }
}

export interface Unready {
  ref: ResourceRef
  namespace: string | undefined
  name: string
  /** RFC 3339. */
  since: string
  /** Reason and message of the condition. */
  why: string
}

interface UnreadySnapshot {
  objects: readonly Unready[]
  /** There are more objects than are read. */
  isCut: boolean
}

/** Leaves out objects that are being deleted. */
async function unreadyIn(view: ExistingStreams['view'], kinds: readonly ResourceRef[]): Promise<UnreadySnapshot> {
  const objects: Unready[] = []
  let read = 0
  for (const ref of kinds)
    for await (const event of view.stored([{ ref }])) {
      if (++read > MOST) return { objects, isCut: true }
      const ready = isPresent(event) ? conditionOf(event.object, 'Ready') : undefined
      const { namespace, name, creationTimestamp, deletionTimestamp } = event.object.metadata
      if (ready === undefined || ready.status === 'True' || deletionTimestamp !== undefined) continue
      const since = ready.lastTransitionTime ?? creationTimestamp
      if (since !== undefined) objects.push({ ref, namespace, name, since, why: wordsOf(ready) })
    }
  return { objects, isCut: false }
}

interface RunsSelection {
  reconciler?: string
  /** Undefined: of all; null: of objects without a namespace. */
  namespace?: string | null
  name?: string
  result?: RunResult
}

/** Records that are looked through, from the newest back, until enough match. */
const WINDOWS = [200, 2000]
const MOST_RUNS = 100

/** The newest first, without the objects that they saw. */
async function recentRuns(view: RunsView, { result, ...filter }: RunsSelection): Promise<StoredRun[]> {
  const end = await view.end()
  let found: StoredRun[] = []
  for (const window of WINDOWS) {
    found = []
    for await (const run of view.list(filter, Math.max(1, end - window + 1))) {
      if (result !== undefined && run.record.result !== result) continue
      const { objects: _, ...record } = run.record
      found.push({ ...run, record })
      if (found.length > MOST_RUNS) found.shift()
    }
    if (found.length >= MOST_RUNS || window >= end) break
  }
  return found.reverse()
}
