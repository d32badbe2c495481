import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll } from 'vitest'
import type { Nats } from '#lab'
import type { JetStream } from '#nats'
import { type Entry, type Finish, type Lease, openQueue, type QueueOptions, type Worker, type WorkQueue } from '#queue'
import { connectTo } from '../support/jetstream.ts'
import { startTestNats } from '../support/servers.ts'
import { type ShippedNats, type ShippedUser, startShippedNats } from '../support/shipped-users.ts'

export const FN = 'f'
/** Short, so that what waits for the end of a lease does not take long. */
export const LEASE_MS = 1200
/** For what waits for the end of a lease. A busy machine loses leases by it, so that runs are not to be counted. */
export const SHORT = { leaseMs: LEASE_MS, ackWaitMs: LEASE_MS }
/** Longer than any pause of a busy machine: no lease ends by time, and no token is delivered again. */
export const PATIENT = { leaseMs: 30_000, ackWaitMs: 30_000 }

/** The slowest loop that sends requests pauses for 250 ms between two of them: streams/nats/follow.ts. */
const LONGEST_LOOP_MS = 250

/**
 * A fence before a test checks that a loop has sent nothing: six turns of a loop that is as slow as the slowest one. A
 * loop of this process that was there before has turned as often by then, however slow the machine is.
 */
export async function longerThanAnyLoop(): Promise<void> {
  for (let turn = 0; turn < 6; turn++) await sleep(LONGEST_LOOP_MS)
}

/** As longerThanAnyLoop(). Messages that the server sent before have arrived as well. */
export async function fence({ js }: TestQueue): Promise<void> {
  await longerThanAnyLoop()
  await js.nc.flush()
}

export interface TestQueue extends AsyncDisposable {
  js: JetStream
  queue: WorkQueue
  /** Messages of warnings and errors. */
  logged: string[]
}

let prefixes = 0
/** A queue that never rests is listed as it is. */
const MOST_LISTINGS = 20
/** More than a file has tests. */
const SHIPPED_PREFIXES = 40

/** A name that no other test of this file uses: every test has a stream of its own. */
export const freshPrefix = (): string => `t${prefixes++}`

/** A connection and queue of their own, as another process would have them. */
export async function openTestQueue(
  url: string,
  prefix: string,
  options: Partial<QueueOptions> = {},
): Promise<TestQueue> {
  const js = await connectTo(url)
  const logged: string[] = []
  const keep = (fields: object, message: string) => void logged.push(`${message} ${JSON.stringify(fields)}`)
  const log = { debug() {}, info() {}, warn: keep, error: keep }
  const queue = await openQueue(js, { prefix, log, ...PATIENT, ...options })
  await queue.declare(FN)
  lastSequences.set(queue, () => js.lastSequence(queue.stream))
  return { js, queue, logged, [Symbol.asyncDispose]: () => js.close() }
}

/** A nats-server of one or three for the tests of a file or of a block, and queues on it. */
export function useTestNats({ replicas = 1, ...more }: { replicas?: 1 | 3; maxBytes?: number } = {}) {
  let nats: Nats & AsyncDisposable
  beforeAll(async () => {
    nats = await startTestNats({ replicas, ...more })
  })
  afterAll(() => nats?.[Symbol.asyncDispose]())
  return {
    nats: (): Nats => nats,
    open: (prefix = freshPrefix(), options: Partial<QueueOptions> = {}, url = nats.url) =>
      openTestQueue(url, prefix, { replicas, ...options }),
  }
}

/** As useTestNats(), with queues that may do what deploy/nats lets this user do; `admin` may do everything. */
export function useShippedNats(
  user: ShippedUser,
  { replicas = 1, ...more }: { replicas?: 1 | 3; maxBytes?: number } = {},
) {
  let nats: ShippedNats
  let admin: JetStream
  beforeAll(async () => {
    // Files that ran before in this worker have used the prefixes before these.
    const next = Array.from({ length: SHIPPED_PREFIXES }, (_, index) => `t${prefixes + index}`)
    nats = await startShippedNats(next, { replicas, ...more })
    admin = await connectTo(nats.url, 'admin')
  })
  afterAll(async () => {
    await admin?.close()
    await nats?.[Symbol.asyncDispose]()
  })
  return {
    nats: (): ShippedNats => nats,
    admin: () => admin,
    open: (prefix = freshPrefix(), options: Partial<QueueOptions> = {}, url = nats.url) =>
      openTestQueue(nats.as(url, user), prefix, { replicas, ...options }),
  }
}

/**
 * Models the objects of the keys and their observers: a change increments the version of a key and enqueues it. A run
 * reads the version when it starts, and has handled it when it ends.
 */
export class World {
  readonly versions = new Map<string, number>()
  readonly dealtWith = new Map<string, number>()
  /** Keys in the order of their starts. */
  readonly starts: string[] = []
  readonly leases: Lease[] = []
  /** Two runs of one key at a time, both inside their leases. */
  readonly overlaps: string[] = []
  readonly #running = new Map<string, Set<Lease>>()

  async change(queue: WorkQueue, key: string, lane: 'high' | 'low' = 'high'): Promise<'queued' | 'coalesced'> {
    this.versions.set(key, (this.versions.get(key) ?? 0) + 1)
    return queue.enqueue(FN, key, { lane })
  }

  serve(queue: WorkQueue, work: (lease: Lease) => Promise<Finish> | Finish = () => DONE, slots = 16): Worker {
    return queue.serve({
      reconciler: FN,
      slots,
      handler: async (lease) => {
        const version = this.versions.get(lease.key) ?? 0
        const others = this.#running.get(lease.key) ?? new Set()
        this.#running.set(lease.key, others)
        for (const other of others) if (isInsideLease(other)) this.overlaps.push(`${lease.key}: ${other.owner}`)
        this.starts.push(lease.key)
        this.leases.push(lease)
        others.add(lease)
        try {
          const finish = await work(lease)
          lease.hold()
          this.dealtWith.set(lease.key, Math.max(version, this.dealtWith.get(lease.key) ?? 0))
          return finish
        } finally {
          others.delete(lease)
        }
      },
    })
  }

  runsOf(key: string): number {
    return this.starts.filter((started) => started === key).length
  }
}

function isInsideLease(lease: Lease): boolean {
  try {
    lease.hold()
    return true
  } catch {
    return false
  }
}

export const DONE: Finish = { kind: 'done' }

/** Returns the last sequence of the stream of a queue. */
const lastSequences = new WeakMap<WorkQueue, () => Promise<number>>()

/**
 * Lists a queue once more while something was stored during the listing, because a list reads records before tokens: a
 * token that becomes a record in between would be missing. With replicas, a follower may still answer with an older
 * state.
 */
export async function entriesOf(queue: WorkQueue): Promise<Entry[]> {
  const lastSequence = lastSequences.get(queue) ?? (async () => 0)
  for (let tries = 1; ; tries++) {
    const before = await lastSequence()
    const entries: Entry[] = []
    for await (const entry of queue.list({ reconciler: FN })) entries.push(entry)
    if (tries === MOST_LISTINGS || (await lastSequence()) === before) return entries
  }
}

export const statesOf = async (queue: WorkQueue): Promise<string[]> =>
  (await entriesOf(queue)).map(({ key, state }) => `${key} ${state}`)

/** A promise and its resolve function. */
export function gate(): { opened: Promise<void>; open: () => void } {
  const { promise, resolve } = Promise.withResolvers<void>()
  return { opened: promise, open: resolve }
}

export { until } from '../support/wait.ts'

export const inMs = (ms: number) => new Date(Date.now() + ms)

export const inOneHour = () => inMs(3_600_000)

/** `n.<name>0`, `n.<name>1`, … */
export const keysNamed = (name: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `n.${name}${index}`)

/** A run that reports its start, and lasts until the test ends it. */
export function pausedWork(finish: Finish = DONE) {
  const began = gate()
  const goesOn = gate()
  const work = async (): Promise<Finish> => {
    began.open()
    await goesOn.opened
    return finish
  }
  return { work, began: began.opened, letGo: goesOn.open }
}

/** Runs that stay until they are let go or aborted, and the most that were under way at a time. */
export class HeldRuns {
  readonly running: Lease[] = []
  most = 0
  readonly #goesOn = gate()

  run = async (lease: Lease): Promise<Finish> => {
    this.running.push(lease)
    this.most = Math.max(this.most, this.running.length)
    await Promise.race([this.#goesOn.opened, once(lease.signal, 'abort')])
    this.running.splice(this.running.indexOf(lease), 1)
    return DONE
  }
  letGo = this.#goesOn.open
  of = (lane: 'high' | 'low') => this.running.filter((lease) => lease.lane === lane).length
}
