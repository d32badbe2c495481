import type { RunLog } from '#contracts/log'
import type { Delivery, JetStream } from '#jetstream'
import type { ServerClock } from './clock.ts'
import type { Bed, Ending } from './finish.ts'
import type { Terms } from './lease.ts'
import { drive, type Machine } from './machine.ts'
import type { Names } from './names.ts'
import { answerTo, perform } from './perform.ts'
import type { Io, Lane } from './record.ts'
import type { Bucket } from './sleep.ts'
import type { ProcessSlots } from './slots.ts'
import { transitions } from './transitions.ts'
import type { KeyOf, QueueObserver } from './types.ts'

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
  onIo: ((io: Io, key: string) => void | Promise<void>) | undefined
}

export interface Patience {
  signal?: AbortSignal | undefined
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
  { delivery, ...patience }: Patience & { delivery?: Delivery | undefined } = {},
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

export async function enqueueKey(
  core: Core,
  of: KeyOf,
  { lane, attempt }: { lane: Lane; attempt: number },
): Promise<'queued' | 'coalesced'> {
  const result = await operate(core, transitions.enqueue, { lane, attempt }, of)
  core.observer.onEnqueue?.(of.reconciler, result)
  return result
}
