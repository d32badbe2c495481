import { nuid } from 'nats'
import type { RunLog } from '#contracts/log'
import { isPassing, type JetStream, mayBeReplicated } from '#nats'
import { retry } from '#primitives'
import { ServerClock } from './clock.ts'
import { enqueueKey, operate, type QueueDeps } from './core.ts'
import {
  declareConsumers,
  declaredReconcilers,
  declareWork,
  deleteConsumers,
  findWork,
  waitingRequests,
} from './declare.ts'
import { type RetryResult, retry as retryMachine, type WithdrawResult, withdraw } from './intervene.ts'
import { Janitor, Overdue, StuckTokens } from './janitor.ts'
import { backlogOf, depthOf, entriesOf, listEntries } from './list.ts'
import { clockTolerance } from './machine.ts'
import { type Causes, type Io, LANES, type Lane, type Token } from './record.ts'
import { fixedSlots, type SlotShare } from './shared-slots.ts'
import { ProcessSlots } from './slots.ts'
import type { Announced, Backlog, Depth, Entry, KeyOf, QueueObserver, Safety, ServeOptions, Worker } from './types.ts'
import { demandKey, Names, tokenFrom } from './wire.ts'
import { QueueWorker } from './worker.ts'

export interface QueueOptions {
  /** A prefix of the names of stream and subjects, so that several queues can share a server. */
  prefix?: string
  /** False: openQueue throws NoQueueError if the stream does not exist. */
  create?: boolean
  /** The replicas of the stream. Left out: an existing stream keeps its number, a new stream gets one. */
  replicas?: 1 | 3
  /** Raises the replicas of an existing stream to that number. Needs the permission to update the stream. */
  raiseReplicas?: boolean
  /**
   * How long a worker may be silent before its key is queued again, in milliseconds. Processes may have different
   * values. Default 10 s.
   */
  leaseMs?: number
  /**
   * How long a token may be in flight before it is delivered again, in milliseconds. The last process that declares the
   * queue decides. Default 10 s.
   */
  ackWaitMs?: number
  /**
   * The number of keys that this process holds at once, of all Reconcilers together, or the share of this queue in it.
   * Left out: the sum of their slots.
   */
  slots?: number | SlotShare | undefined
  log: RunLog
  observer?: QueueObserver
  /** Returns the wall clock's time in epoch milliseconds. */
  now?: () => number
  /** The name of this process for users who look at running keys. */
  instance?: string
  /** Called before each access to the stream, for tests that crash there. */
  onIo?: (io: Io, key: string) => void | Promise<void>
}

interface ListOptions {
  /** Left out: all Reconcilers. */
  reconciler?: string
  /** Left out: all states. */
  states?: readonly Entry['state'][]
  limit?: number
}

export interface WorkQueue {
  /** The name of the JetStream stream that holds the queue. */
  readonly stream: string
  /** A subject of the stream that belongs to no key. Its message shows whether the stream was emptied. */
  readonly mark: string
  /** Declares the two consumers of a Reconciler. Call before its first enqueue or serve. */
  declare(reconciler: string): Promise<void>
  /**
   * Queues a key. Once it resolves, a run that starts later is certain, whichever process dies. coalesced: the key was
   * queued already. Waits as long as NATS does not answer. `attempt` is the number of failed runs before. `cause`: why
   * the key is queued. The run shows it, unless the key was queued already.
   */
  enqueue(
    reconciler: string,
    key: string,
    options?: { lane?: Lane; attempt?: number; cause?: string },
  ): Promise<'queued' | 'coalesced'>
  /**
   * Accepts a change that this process observed, and runs the key in this process if possible. A run of the key that is
   * under way here reads again before it ends. With a free slot, the key runs at once, without a token. Otherwise this
   * is enqueue().
   */
  announce(reconciler: string, key: string, options?: { lane?: Lane; cause?: string }): Announced
  serve(options: ServeOptions): Worker
  /** Deletes the consumers of a Reconciler. Queued keys stay, and are served once the Reconciler is declared again. */
  removeConsumers(reconciler: string): Promise<void>
  /** Returns the Reconcilers that any process has declared here. */
  reconcilers(): Promise<string[]>
  /** Returns whether a process serves the Reconciler: it waits for keys or for a rate, or runs one. */
  isServed(reconciler: string): Promise<boolean>
  /** Lists entries. Entries in other states are not read. */
  list(options?: ListOptions): AsyncGenerator<Entry>
  /** Returns the entries of one key. */
  find(of: KeyOf): Promise<Entry[]>
  depth(reconciler: string): Promise<Depth>
  backlog(reconciler: string): Promise<Backlog>
  /** Runs a waiting or parked key now. The key keeps its count of failures. */
  retry(of: KeyOf, signal?: AbortSignal): Promise<RetryOutcome>
  /** Parks a key that does not run: it runs again only if a user retries it or it is enqueued. */
  park(of: KeyOf, signal?: AbortSignal): Promise<WithdrawOutcome>
  /** Deletes the timer of a key that does not run, and every change that was enqueued before this resolves. */
  purge(of: KeyOf, signal?: AbortSignal): Promise<WithdrawOutcome>
  /**
   * Finds and replaces tokens that would never be delivered and timers that would never fire. Workers do this by
   * themselves. `atOnce` is the number of records that one pass reads, 10,000 by default.
   */
  janitor(reconciler: string, atOnce?: number): Looks
}

/** Looks that a user of the queue asks for. */
interface Looks {
  /** Makes one look, and returns the number of repaired keys. A token is repaired if two looks in a row have found it. */
  pass(): Promise<number>
}

const DEFAULT_LEASE_MS = 10_000
const DEFAULT_ACK_WAIT_MS = 10_000
/** Between the first questions for the server's time, while the cluster elects a leader. */
const PAUSE_MS = 100

/** Declares the stream and measures the server's clock. */
export async function openQueue(js: JetStream, options: QueueOptions): Promise<WorkQueue> {
  const names = new Names(options.prefix ?? '')
  const replicas = options.create === false ? await findWork(js, names) : await declareWork(js, names, options)
  const terms = {
    leaseMs: options.leaseMs ?? DEFAULT_LEASE_MS,
    get replicated() {
      return mayBeReplicated(js, replicas)
    },
  }
  const sources = {
    wall: options.now ?? Date.now,
    monotonic: () => performance.now(),
    server: () => js.serverTime(names.stream),
  }
  const clock = new ServerClock(sources, clockTolerance(terms))
  const until = performance.now() + js.patienceMs
  const pauseMs = (error: unknown) => (isPassing(error) && performance.now() < until ? PAUSE_MS : undefined)
  await retry(() => clock.measure(), { pauseMs })
  const deps: QueueDeps = {
    js,
    names,
    clock,
    terms,
    ackWaitMs: options.ackWaitMs ?? DEFAULT_ACK_WAIT_MS,
    replicas,
    slots: new ProcessSlots(shareOf(options.slots), js.outbox),
    worker: nuid.next(),
    instance: options.instance,
    random: Math.random,
    nonce: () => nuid.next(),
    log: options.log,
    observer: options.observer ?? {},
    onIo: options.onIo,
  }
  return new JetStreamQueue(deps)
}

class JetStreamQueue implements WorkQueue {
  readonly #deps: QueueDeps
  readonly #janitor: Janitor
  /** The latest worker of this process for each Reconciler. */
  readonly #workers = new Map<string, QueueWorker>()

  constructor(deps: QueueDeps) {
    this.#deps = deps
    this.#janitor = new Janitor(deps)
  }

  get stream(): string {
    return this.#deps.names.stream
  }

  get mark(): string {
    return this.#deps.names.mark
  }

  declare(reconciler: string): Promise<void> {
    return declareConsumers(this.#deps, reconciler)
  }

  async enqueue(
    reconciler: string,
    key: string,
    { lane = 'high', attempt = 0, cause }: { lane?: Lane; attempt?: number; cause?: string } = {},
  ) {
    demandKey(key)
    return enqueueKey(this.#deps, { reconciler, key }, { lane, attempt, ...caused(cause) })
  }

  announce(reconciler: string, key: string, { lane = 'high', cause }: { lane?: Lane; cause?: string } = {}): Announced {
    demandKey(key)
    const enqueue = async (): Promise<Safety> => {
      await enqueueKey(this.#deps, { reconciler, key }, { lane, attempt: 0, ...caused(cause) })
      return 'token'
    }
    const here = this.#workers.get(reconciler)?.announce(key, lane, caused(cause).causes)
    if (here === undefined) return { noted: false, safe: enqueue() }
    const { noted, safe } = here
    return { noted, safe: safe.then((isSafe) => (isSafe ? this.#count(reconciler, noted) : enqueue())) }
  }

  #count(reconciler: string, noted: boolean): Safety {
    this.#deps.observer.onEnqueue?.(reconciler, noted ? 'coalesced' : 'queued')
    return noted ? 'run' : 'record'
  }

  serve(options: ServeOptions): Worker {
    const worker = new QueueWorker(this.#deps, options, this.#janitor)
    this.#workers.set(options.reconciler, worker)
    this.#deps.observer.onServe?.(options.reconciler, options.slots)
    return worker
  }

  removeConsumers(reconciler: string): Promise<void> {
    return deleteConsumers(this.#deps.js, this.#deps.names, reconciler)
  }

  reconcilers(): Promise<string[]> {
    return declaredReconcilers(this.#deps.js, this.#deps.names)
  }

  async isServed(reconciler: string): Promise<boolean> {
    const { js, names } = this.#deps
    if ((await waitingRequests(js, names, reconciler)) > 0) return true
    if ((await depthOf(this.#deps, reconciler)).running > 0) return true
    return (await js.lastOf(names.stream, names.limited(reconciler, '*'))) !== undefined
  }

  async *list({ limit = Number.POSITIVE_INFINITY, ...which }: ListOptions = {}): AsyncGenerator<Entry> {
    let given = 0
    for await (const entry of listEntries(this.#deps, which)) {
      if (given++ >= limit) return
      yield entry
    }
  }

  find(of: KeyOf): Promise<Entry[]> {
    return entriesOf(this.#deps, of)
  }

  depth(reconciler: string): Promise<Depth> {
    return depthOf(this.#deps, reconciler)
  }

  backlog(reconciler: string): Promise<Backlog> {
    return backlogOf(this.#deps, reconciler)
  }

  retry(of: KeyOf, signal?: AbortSignal): Promise<RetryOutcome> {
    return retryKey(this.#deps, of, signal)
  }

  park(of: KeyOf, signal?: AbortSignal): Promise<WithdrawOutcome> {
    return withdrawKey(this.#deps, of, 'park', signal)
  }

  purge(of: KeyOf, signal?: AbortSignal): Promise<WithdrawOutcome> {
    return withdrawKey(this.#deps, of, 'purge', signal)
  }

  janitor(reconciler: string, atOnce?: number): Looks {
    const deps = this.#deps
    const serves = (name: string) => name === reconciler
    const tokens = new StuckTokens(deps, reconciler)
    const overdue = new Overdue(deps, { serves, ...(atOnce !== undefined && { atOnce }) })
    return { pass: async () => (await tokens.look()) + (await overdue.look()) }
  }
}

const shareOf = (slots: QueueOptions['slots'] = Number.POSITIVE_INFINITY): SlotShare =>
  typeof slots === 'number' ? fixedSlots(slots) : slots

const caused = (cause: string | undefined): { causes?: Causes } => (cause === undefined ? {} : { causes: [cause] })

/** `idle`: the queue held nothing for this key. `running`: the key runs now, and nothing was changed. */
export type RetryOutcome = 'queued' | 'running' | 'idle'
export type WithdrawOutcome = 'parked' | 'purged' | 'running' | 'idle'

async function retryKey(deps: QueueDeps, of: KeyOf, signal?: AbortSignal): Promise<RetryOutcome> {
  const result: RetryResult = await operate(deps, retryMachine, {}, of, signal && { signal })
  if (result !== 'none') return result
  return (await tokensOf(deps, of)).length > 0 ? 'queued' : 'idle'
}

async function withdrawKey(
  deps: QueueDeps,
  of: KeyOf,
  to: 'park' | 'purge',
  signal?: AbortSignal,
): Promise<WithdrawOutcome> {
  const input = { to, nonce: deps.nonce(), tokens: await tokensOf(deps, of) }
  const result: WithdrawResult = await operate(deps, withdraw, input, of, signal && { signal })
  return result === 'none' ? 'idle' : result
}

async function tokensOf({ js, names }: QueueDeps, { reconciler, key }: KeyOf): Promise<Token[]> {
  const found = await Promise.all(
    LANES.map(async (lane) => {
      const message = await js.lastOf(names.stream, names.token(reconciler, lane, key))
      return message && tokenFrom(message, lane)
    }),
  )
  return found.filter((token) => token !== undefined)
}
