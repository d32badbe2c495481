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

/** Where timers that are far ahead sleep. */
export interface SleepingTimers {
  /**
   * The bucket for the timer of this ending, if it is far enough ahead. It opens after the end of the lease, by the same
   * clock: a write that relies on the lease is stored before.
   */
  bucketFor(ending: Ending, leaseEndsAt: number): Bucket | undefined
  /** A place in the bucket, which is certain to be opened. Undefined: the server can carry the timer. */
  bedIn(bucket: Bucket, patience: Patience): Promise<Bed | undefined>
}

/** What all parts of one queue share in a process. */
export interface Core {
  js: JetStream
  names: Names
  clock: ServerClock
  terms: Terms
  ackWaitMs: number
  slots: ProcessSlots
  /** Left out: no timer sleeps. */
  timers?: SleepingTimers
  /** This process in the stream: where its releases go. */
  worker: string
  /** This process to people. */
  instance: string | undefined
  random: () => number
  /** Text that no other process ever draws. */
  nonce: () => string
  log: RunLog
  observer: QueueObserver
  onIo: ((io: Io, key: string) => void | Promise<void>) | undefined
}

export interface Patience {
  signal?: AbortSignal | undefined
  /** With nobody to tell the time, it is given up when it may be later than that. */
  until?: number
}

/** Runs a transition on the stream. To abort leaves it where it is, as a crash would. */
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

/** The server's time, however long it takes to learn it. */
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
