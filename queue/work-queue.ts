import { nuid } from 'nats'
import { type JetStream, mayBeReplicated } from '#jetstream'
import { type RetryOutcome, retryKey, type WithdrawOutcome, withdrawKey } from './by-hand.ts'
import { ServerClock } from './clock.ts'
import { type Core, enqueueKey } from './core.ts'
import { declaredFunctions, declareFunction, declareWork, findWork, retireFunction } from './declare.ts'
import { backlogOf, depthOf } from './depth.ts'
import { Janitor } from './janitor.ts'
import { clockTolerance } from './lease.ts'
import { entriesOf, listEntries } from './list.ts'
import { demandKey, Names, TIMERS } from './names.ts'
import { Opener } from './opener.ts'
import type { Io, Lane } from './record.ts'
import { ProcessSlots } from './slots.ts'
import { DEFAULT_ARMED_LIMIT, Timers } from './timers.ts'
import type {
  Announced,
  Backlog,
  Depth,
  Entry,
  KeyOf,
  QueueLog,
  QueueObserver,
  Safety,
  ServeOptions,
  Worker,
} from './types.ts'
import { QueueWorker } from './worker.ts'

export interface QueueOptions {
  /** Before the names of stream and subjects, so that several queues can share a server. */
  prefix?: string
  /** False: NoQueueError if the stream is not there. */
  create?: boolean
  /** Of the stream. Left out: as it is there, or one. */
  replicas?: 1 | 3
  /** Raises the replicas of an existing stream to that number. Needs the permission to update it. */
  raiseReplicas?: boolean
  /** How long a worker may be silent before its key is queued again. Processes may have different ones. Default 10 s. */
  leaseMs?: number
  /** How long a token may be in flight before it is delivered again: as the last process to declare it has it. Default 10 s. */
  ackWaitMs?: number
  /** Timers that the server carries before others sleep. Default 50,000. */
  armedLimit?: number
  /** Keys that this process holds at once, of all functions together. Left out: as many as they have slots. */
  slots?: number
  log: QueueLog
  observer?: QueueObserver
  /** The wall clock, epoch milliseconds. */
  now?: () => number
  random?: () => number
  /** Names this process to people who look at what runs. */
  instance?: string
  /** Called before each access to the stream, for tests that crash there. */
  onIo?: (io: Io, key: string) => void | Promise<void>
}

interface ListOptions {
  /** Left out: of all functions. */
  fn?: string
  /** Left out: in all states. */
  states?: readonly Entry['state'][]
  limit?: number
}

export interface WorkQueue {
  /** Name of the JetStream stream that holds it all. */
  readonly stream: string
  /** A subject of it that is about no key, for who wants to know whether somebody has emptied it. */
  readonly mark: string
  /** The two consumers of a function: before its first enqueue or serve. */
  declare(fn: string): Promise<void>
  /**
   * Once resolved, a run that starts later is certain, whatever dies; coalesced: the key was queued already. Waits as
   * long as NATS does not answer. `attempt` counts the failed runs that the key has behind it.
   */
  enqueue(fn: string, key: string, options?: { lane?: Lane; attempt?: number }): Promise<'queued' | 'coalesced'>
  /**
   * A change that this process was told of, where it may also run: a run of the key that is under way here reads again
   * before it ends, and with a slot free the key runs at once, without a token; else this is enqueue().
   */
  announce(fn: string, key: string, options?: { lane?: Lane }): Announced
  serve(options: ServeOptions): Worker
  /** Deletes the consumers of a function. Keys that are queued stay, and are served once it is declared again. */
  retire(fn: string): Promise<void>
  /** Everything declared here, by any process. */
  functions(): Promise<string[]>
  /** What is not in these states is not read. */
  list(options?: ListOptions): AsyncGenerator<Entry>
  /** What there is of one key. */
  find(of: KeyOf): Promise<Entry[]>
  depth(fn: string): Promise<Depth>
  backlog(fn: string): Promise<Backlog>
  /** Runs a waiting or parked key now; its count of failures stays. */
  retry(of: KeyOf, signal?: AbortSignal): Promise<RetryOutcome>
  /** Keeps a key that does not run from running until it is retried or enqueued. */
  park(of: KeyOf, signal?: AbortSignal): Promise<WithdrawOutcome>
  /** Throws away what a key that does not run is due: its timer, and every change enqueued before this resolves. */
  purge(of: KeyOf, signal?: AbortSignal): Promise<WithdrawOutcome>
  /** Finds and replaces tokens that would never be delivered and timers that would never fire; workers do it by themselves. */
  janitor(fn: string): Pick<Janitor, 'pass'>
}

const DEFAULT_LEASE_MS = 10_000
const DEFAULT_ACK_WAIT_MS = 10_000

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
  await clock.measure()
  const core: Core = {
    js,
    names,
    clock,
    terms,
    ackWaitMs: options.ackWaitMs ?? DEFAULT_ACK_WAIT_MS,
    slots: new ProcessSlots(options.slots ?? Number.POSITIVE_INFINITY),
    worker: nuid.next(),
    instance: options.instance,
    random: options.random ?? Math.random,
    log: options.log,
    observer: options.observer ?? {},
    onIo: options.onIo,
  }
  return new JetStreamQueue(core, new Timers(core, options.armedLimit ?? DEFAULT_ARMED_LIMIT))
}

class JetStreamQueue implements WorkQueue {
  readonly #core: Core
  readonly #opener: Opener
  /** Workers of this process by function, the latest. */
  readonly #workers = new Map<string, QueueWorker>()

  constructor(core: Core, timers: Timers) {
    this.#core = { ...core, timers }
    this.#opener = new Opener(core, timers, (...served) => new QueueWorker(...served))
  }

  get stream(): string {
    return this.#core.names.stream
  }

  get mark(): string {
    return this.#core.names.mark
  }

  async declare(fn: string): Promise<void> {
    const { js, names, ackWaitMs } = this.#core
    for (const one of [TIMERS, fn]) await declareFunction(js, names, one, ackWaitMs)
  }

  async enqueue(fn: string, key: string, { lane = 'high', attempt = 0 }: { lane?: Lane; attempt?: number } = {}) {
    demandKey(key)
    return enqueueKey(this.#core, { fn, key }, { lane, attempt })
  }

  announce(fn: string, key: string, { lane = 'high' }: { lane?: Lane } = {}): Announced {
    demandKey(key)
    const enqueue = async (): Promise<Safety> => {
      await enqueueKey(this.#core, { fn, key }, { lane, attempt: 0 })
      return 'token'
    }
    const here = this.#workers.get(fn)?.announce(key, lane)
    if (here === undefined) return { noted: false, safe: enqueue() }
    const { noted, covered } = here
    return { noted, safe: covered.then((isCovered) => (isCovered ? this.#count(fn, noted) : enqueue())) }
  }

  #count(fn: string, noted: boolean): Safety {
    this.#core.observer.onEnqueue?.(fn, noted ? 'coalesced' : 'queued')
    return noted ? 'run' : 'record'
  }

  serve(options: ServeOptions): Worker {
    const worker = new QueueWorker(this.#core, options)
    this.#workers.set(options.fn, worker)
    this.#core.observer.onServe?.(options.fn, options.slots)
    this.#opener.enter(worker)
    return {
      get running() {
        return worker.running
      },
      drain: async (graceMs) => {
        await Promise.all([worker.drain(graceMs), this.#opener.leave(worker)])
      },
    }
  }

  retire(fn: string): Promise<void> {
    return retireFunction(this.#core.js, this.#core.names, fn)
  }

  functions(): Promise<string[]> {
    return declaredFunctions(this.#core.js, this.#core.names)
  }

  async *list({ limit = Number.POSITIVE_INFINITY, ...which }: ListOptions = {}): AsyncGenerator<Entry> {
    let given = 0
    for await (const entry of listEntries(this.#core, which)) {
      if (given++ >= limit) return
      yield entry
    }
  }

  find(of: KeyOf): Promise<Entry[]> {
    return entriesOf(this.#core, of)
  }

  depth(fn: string): Promise<Depth> {
    return depthOf(this.#core, fn)
  }

  backlog(fn: string): Promise<Backlog> {
    return backlogOf(this.#core, fn)
  }

  retry(of: KeyOf, signal?: AbortSignal): Promise<RetryOutcome> {
    return retryKey(this.#core, of, signal)
  }

  park(of: KeyOf, signal?: AbortSignal): Promise<WithdrawOutcome> {
    return withdrawKey(this.#core, of, 'park', signal)
  }

  purge(of: KeyOf, signal?: AbortSignal): Promise<WithdrawOutcome> {
    return withdrawKey(this.#core, of, 'purge', signal)
  }

  janitor(fn: string): Pick<Janitor, 'pass'> {
    return new Janitor(this.#core, fn)
  }
}
