import { setTimeout as sleep } from 'node:timers/promises'
import type { RunLog } from '#contracts/log'
import { type Delivery, ERR, isPassing, isWrongSequence, type JetStream, JetStreamError } from '#nats'
import { doubling } from '#primitives'
import type { ServerClock } from './clock.ts'
import { drive, type Machine, type Terms } from './machine.ts'
import type { Answer, Causes, Io, Lane, Publish } from './record.ts'
import type { ProcessSlots } from './slots.ts'
import { type OnceResult, once, tokenOf } from './tokens.ts'
import type { KeyOf, QueueObserver } from './types.ts'
import type { Names } from './wire.ts'
import { type Address, recordFrom, toWire } from './wire.ts'

/** The dependencies and settings that all parts of one queue share in a process. */
export interface QueueDeps {
  js: JetStream
  names: Names
  clock: ServerClock
  terms: Terms
  ackWaitMs: number
  /** Of the stream, when this process opened it. */
  replicas: number
  slots: ProcessSlots
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

/**
 * The pauses before a question is repeated. Replicas that keep up need a few milliseconds; without longer pauses for
 * those that do not, the repetitions are most of their load.
 */
const [SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS] = [2, 128]

/** Runs a transition on the stream. An abort leaves the transition where it is, as a crash would. */
export function operate<Input, State extends { io: Io }, Result>(
  deps: QueueDeps,
  machine: Machine<Input, State, Result>,
  input: Input,
  { reconciler, key }: KeyOf,
  { delivery, ...patience }: Patience & { delivery?: Delivery } = {},
): Promise<Result> {
  const address = { names: deps.names, reconciler, key, worker: deps.worker }
  const pauseMs = doubling(SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS)
  const ask = async (io: Io) => {
    patience.signal?.throwIfAborted()
    const answer = await perform(io, deps, address, delivery)
    if (answer.kind === 'busy' || (answer.kind === 'token' && answer.present))
      await sleep(pauseMs() * (0.5 + deps.random() / 2))
    return answer
  }
  return drive(machine, input, ask, () => deps.clock.sure() ?? measured(deps, patience))
}

/** Returns the server's time, and waits until it is known. */
export async function measured(
  { clock, random }: Pick<QueueDeps, 'clock' | 'random'>,
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
export const publishOnce = (deps: QueueDeps, of: KeyOf, message: Publish, patience?: Patience): Promise<OnceResult> =>
  operate(deps, once, message, of, patience)

export async function enqueueKey(
  deps: QueueDeps,
  of: KeyOf,
  { lane, attempt, causes }: { lane: Lane; attempt: number; causes?: Causes },
): Promise<'queued' | 'coalesced'> {
  const result = (await publishOnce(deps, of, tokenOf(lane, attempt, causes))) === 'stored' ? 'queued' : 'coalesced'
  deps.observer.onEnqueue?.(of.reconciler, result)
  return result
}

/** Performs the IO of a machine on JetStream, and maps each outcome to one of the answers that machines know. */
async function perform(io: Io, deps: QueueDeps, address: Address, delivery: Delivery | undefined): Promise<Answer> {
  if (deps.onIo) await deps.onIo(io, address.key)
  try {
    return await doIo(io, deps.js, address, delivery)
  } catch (error) {
    return answerTo(error, deps.random)
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
      return { kind: 'token', present: delivery ? !(await isRemoved(js, names.stream, delivery.sequence)) : false }
  }
}

async function publish(message: Publish, js: JetStream, address: Address): Promise<number> {
  const { subject, payload, headers } = toWire(message, address)
  return (await js.publish(subject, payload, headers)).sequence
}

/**
 * Whether the leader has stored a delivered message and removed it. A follower that leads the consumer can deliver a
 * message before the leader of the stream has stored it: until then it is not there either, and would be found by a
 * publish that expects none.
 */
export async function isRemoved(js: JetStream, stream: string, sequence: number): Promise<boolean> {
  const next = await js.nextFrom(stream, sequence, '>', 'leader')
  if (next !== undefined) return next.sequence > sequence
  // It may be stored between two of these requests.
  return (await js.lastSequence(stream)) >= sequence && (await js.bySequence(stream, sequence)) === undefined
}

/**
 * Maps an error to an answer, after a pause if the machine will ask again. Rethrows errors that no repetition can
 * resolve.
 */
export async function answerTo(error: unknown, random: () => number): Promise<Answer> {
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
