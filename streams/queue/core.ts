import { setTimeout as sleep } from 'node:timers/promises'
import type { RunLog } from '#contracts/log'
import { type Delivery, ERR, isPassing, isWrongSequence, type JetStream, JetStreamError } from '#nats'
import type { ServerClock } from './clock.ts'
import type { Bed, Ending } from './finish.ts'
import { drive, type Machine, type Terms } from './machine.ts'
import type { Answer, Causes, Io, Lane, Publish } from './record.ts'
import type { ProcessSlots } from './slots.ts'
import { type OnceResult, once, tokenOf } from './tokens.ts'
import type { KeyOf, QueueObserver } from './types.ts'
import type { Names } from './wire.ts'
import { type Address, recordFrom, toWire } from './wire.ts'

/** The timers that sleep because they are due in the far future. */
export interface SleepingTimers {
  /**
   * Returns the bucket for the timer of this ending. Undefined: the timer is due too soon to sleep. The bucket opens
   * after the lease ends, by the same clock, so a write that relies on the lease is stored before.
   */
  bucketFor(ending: Ending, leaseEndsAt: number): Bucket | undefined
  /**
   * Returns a place in the bucket after making sure that the bucket will be opened. Undefined: the server can carry the
   * timer.
   */
  bedIn(bucket: Bucket, patience: Patience): Promise<Bed | undefined>
}

/** The dependencies and settings that all parts of one queue share in a process. */
export interface Core {
  js: JetStream
  names: Names
  clock: ServerClock
  terms: Terms
  ackWaitMs: number
  slots: ProcessSlots
  /** Left out: timers do not sleep. */
  timers?: SleepingTimers
  /** The identity of this process in the stream, part of the subject of its releases. */
  worker: string
  /** The name of this process that users see. */
  instance: string | undefined
  random: () => number
  /** Returns a text that no other call in any process returns. */
  nonce: () => string
  log: RunLog
  observer: QueueObserver
  /** Called before each access to the stream. */
  onIo: ((io: Io, key: string) => void | Promise<void>) | undefined
}

export interface Patience {
  signal?: AbortSignal
  /**
   * The server's time after which the operation is given up. Without a measurement of the server's clock, it is given
   * up as soon as that time may have passed.
   */
  until?: number
}

/** Runs a transition on the stream. An abort leaves the transition where it is, as a crash would. */
export function operate<Input, State extends { io: Io }, Result>(
  core: Core,
  machine: Machine<Input, State, Result>,
  input: Input,
  { reconciler, key }: KeyOf,
  { delivery, ...patience }: Patience & { delivery?: Delivery } = {},
): Promise<Result> {
  const address = { names: core.names, reconciler, key, worker: core.worker }
  const ask = (io: Io) => {
    patience.signal?.throwIfAborted()
    return perform(io, core, address, delivery)
  }
  return drive(machine, input, ask, () => core.clock.sure() ?? measured(core, patience))
}

/** Returns the server's time, and waits until it is known. */
export async function measured(
  { clock, random }: Pick<Core, 'clock' | 'random'>,
  { signal, until = Number.POSITIVE_INFINITY }: Patience = {},
): Promise<number> {
  for (let time = clock.sure(); ; time = clock.sure()) {
    if (time !== undefined) return time
    signal?.throwIfAborted()
    try {
      await clock.measure()
    } catch (error) {
      await answerTo(error, random)
      if (clock.now() > until) throw error
    }
  }
}

/** Stores one message that is not needed if another one was first. Waits as long as NATS does not answer. */
export const publishOnce = (core: Core, of: KeyOf, message: Publish, patience?: Patience): Promise<OnceResult> =>
  operate(core, once, message, of, patience)

export async function enqueueKey(
  core: Core,
  of: KeyOf,
  { lane, attempt, causes }: { lane: Lane; attempt: number; causes?: Causes },
): Promise<'queued' | 'coalesced'> {
  const result = (await publishOnce(core, of, tokenOf(lane, attempt, causes))) === 'stored' ? 'queued' : 'coalesced'
  core.observer.onEnqueue?.(of.reconciler, result)
  return result
}

/** Performs the IO of a machine on JetStream, and maps each outcome to one of the answers that machines know. */
async function perform(io: Io, core: Core, address: Address, delivery: Delivery | undefined): Promise<Answer> {
  if (core.onIo) await core.onIo(io, address.key)
  try {
    return await doIo(io, core.js, address, delivery)
  } catch (error) {
    return answerTo(error, core.random)
  }
}

async function doIo(io: Io, js: JetStream, address: Address, delivery: Delivery | undefined): Promise<Answer> {
  const { names, reconciler, key } = address
  switch (io.do) {
    case 'publish':
      return { kind: 'stored', sequence: await publish(io.message, js, address) }
    case 'readRecord': {
      const message = await js.lastOf(names.stream, names.records(reconciler, key))
      return { kind: 'record', record: message && recordFrom(message, names) }
    }
    case 'acknowledge':
      if (io.confirmed) await delivery?.ackConfirmed()
      else delivery?.ack()
      return { kind: 'acknowledged' }
    case 'removeToken':
      await js.remove(names.stream, io.sequence)
      return { kind: 'removed' }
    case 'readToken':
      return { kind: 'token', present: delivery ? await isStored(js, names.stream, delivery.sequence) : false }
  }
}

async function publish(message: Publish, js: JetStream, address: Address): Promise<number> {
  const { subject, payload, headers } = toWire(message, address)
  return (await js.publish(subject, payload, headers)).sequence
}

const isStored = async (js: JetStream, stream: string, sequence: number): Promise<boolean> =>
  (await js.bySequence(stream, sequence)) !== undefined

/**
 * Maps an error to an answer, after a pause if the machine will ask again. Rethrows errors that no repetition can
 * resolve.
 */
async function answerTo(error: unknown, random: () => number): Promise<Answer> {
  if (isWrongSequence(error)) return { kind: 'conflict' }
  if (error instanceof JetStreamError && error.errCode === ERR.publishInFlight) {
    await sleep(1 + 4 * random())
    return { kind: 'busy' }
  }
  if (isPassing(error)) {
    await sleep(20 + 50 * random())
    return { kind: 'unknown' }
  }
  throw error
}

/**
 * A hierarchical timing wheel of sleeping timers. A timer that is due in the far future lies in a wide bucket, and
 * moves to a narrower one when its bucket opens. Each level has SLOTS buckets, so the state part of a subject has at
 * most LEVELS × SLOTS additional values: a compare-and-set reads all of them.
 */
export interface Bucket {
  level: number
  /** The start of the bucket since the epoch, in widths of its level. */
  index: number
}

const LEVELS = 7
const SLOTS = 8
const NARROWEST_MS = 8000
/** How long before its first timer is due a bucket opens. */
const LEAD_MS = 1000

const widthOf = (level: number): number => NARROWEST_MS * SLOTS ** level

/** Returns when a process must open the bucket, in epoch milliseconds. */
export const opensAt = ({ level, index }: Bucket): number => index * widthOf(level) - LEAD_MS

/** Returns the bucket of a timer. Undefined: the timer is due at most 9 s after `from`, too soon to sleep. */
export function bucketFor(at: number, from: number): Bucket | undefined {
  let level = 0
  while (level < LEVELS - 1 && at - from >= widthOf(level + 1) + LEAD_MS) level++
  const bucket = { level, index: Math.floor(at / widthOf(level)) }
  return opensAt(bucket) <= from ? undefined : bucket
}

/** Returns the slot in the subject of a record. Buckets that are a whole turn of the wheel apart share a slot. */
export const slotOf = ({ level, index }: Bucket): string => `${level}${index % SLOTS}`

/** Returns the slots of one level. `level` may exceed the number of levels: it wraps around. */
export const slotsOf = (level: number): string[] =>
  Array.from({ length: SLOTS }, (_, index) => slotOf({ level: level % LEVELS, index }))

/** Whether a timer with this time lies in this bucket or an earlier bucket of the same slot. */
export const isIn = (at: number, { level, index }: Bucket): boolean => Math.floor(at / widthOf(level)) <= index

/** Returns the bucket of a slot that holds a timer with this time. */
export function bucketIn(slot: string, at: number): Bucket {
  const level = Number(slot.charAt(0))
  return { level, index: Math.floor(at / widthOf(level)) }
}

/** Returns the key that stands for a bucket in the queue. */
export const keyOf = ({ level, index }: Bucket): string => `${level}.${index}`

export function bucketOf(key: string): Bucket {
  const [level, index] = key.split('.').map(Number)
  return { level: level ?? Number.NaN, index: index ?? Number.NaN }
}
