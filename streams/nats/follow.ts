import { setTimeout as sleep } from 'node:timers/promises'
import { type ConsumerConfig, JetStreamApiError } from '@nats-io/jetstream'
import { type Msg, PermissionViolationError, type Subscription } from 'nats'
import { pause, Wake } from '#primitives'
import type { JetStream } from './client.ts'
import { ConnectionClosedError, isPassing } from './errors.ts'
import { ackMetadata, plainHeaders, type StoredMessage, statusOf } from './messages.ts'

const PAUSE_MS = 200
/** A leader stored what a replica had delivered within 0.7 s, on a machine with much to do. */
const SET_BACK_MS = 2000
/** How long the server keeps a consumer that has no listener. */
const UNUSED_MS = 30_000

export interface FollowOptions {
  headersOnly?: boolean
  /**
   * Left out: begins with the last message of each subject. A date: begins with messages stored then or later. A
   * number: begins behind that sequence.
   */
  start?: Date | number
}

/**
 * Follows a stream: the last message of each matching subject, then every later one, in stream order, until the signal
 * aborts. After a lost connection or server it continues from its position, and it begins again if the server has lost
 * messages that it has sent. With more than one replica, the start may be older than messages that were just stored;
 * the missing ones follow.
 */
export async function* follow(
  js: JetStream,
  stream: string,
  subjects: string[],
  signal: AbortSignal,
  { headersOnly = false, start }: FollowOptions = {},
): AsyncGenerator<StoredMessage> {
  for (let last = 0; !signal.aborted; ) {
    if (js.nc.isClosed()) throw new ConnectionClosedError(`cannot follow ${stream}: the NATS connection is closed`)
    const feed = new Feed(js, signal)
    const wanted = { filter_subjects: subjects, headers_only: headersOnly, deliver_subject: feed.inbox }
    const consumer = await addConsumer(js, stream, { ...wanted, ...startAfter(last, start) }, signal)
    const isLost = last > 0 && (await isSetBack(() => js.lastSequence(stream), last, signal).catch(() => undefined))
    if (isLost) last = 0
    if (consumer === undefined || isLost !== false) feed.close()
    if (isLost === undefined) await pause(PAUSE_MS, signal)
    try {
      for await (const message of feed) {
        const { sequence, storedAt } = ackMetadata(message.reply ?? '')
        last = sequence
        const { subject, data } = message
        yield { subject, sequence, storedAt, headers: plainHeaders(message), data }
      }
    } finally {
      feed.close()
      if (consumer !== undefined) void js.admin.consumers.delete(stream, consumer).catch(() => false)
    }
  }
}

/** Whether the leader has lost a delivered message. A replica may deliver it before the leader has stored it. */
export async function isSetBack(
  lastSequence: () => Promise<number>,
  delivered: number,
  signal: AbortSignal,
): Promise<boolean> {
  if ((await lastSequence()) >= delivered) return false
  await pause(SET_BACK_MS, signal)
  return (await lastSequence()) < delivered
}

function startAfter(last: number, start: FollowOptions['start']): Partial<ConsumerConfig> {
  if (last > 0) return { deliver_policy: 'by_start_sequence', opt_start_seq: last + 1 }
  if (start instanceof Date) return { deliver_policy: 'by_start_time', opt_start_time: start.toISOString() }
  if (start === undefined) return { deliver_policy: 'last_per_subject' }
  return { deliver_policy: 'by_start_sequence', opt_start_seq: start + 1 }
}

/**
 * Creates a consumer and returns its name. Undefined, after a pause: the server could not create it, was unavailable,
 * or the signal aborted.
 */
async function addConsumer(
  js: JetStream,
  stream: string,
  config: Partial<ConsumerConfig>,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { promise: tooLate, resolve } = Promise.withResolvers<undefined>()
  const giveUp = () => resolve(undefined)
  const forget = js.onReconnect(giveUp)
  signal.addEventListener('abort', giveUp, { once: true })
  const added = js.admin.consumers.add(stream, {
    ...config,
    ack_policy: 'none',
    mem_storage: true,
    num_replicas: 1,
    flow_control: true,
    idle_heartbeat: HEARTBEAT_MS * 1e6,
    inactive_threshold: UNUSED_MS * 1e6,
  })
  try {
    return await Promise.race([added.then(({ name }) => name), tooLate])
  } catch (error) {
    if (error instanceof JetStreamApiError && error.status < 500) throw error
    if (error instanceof PermissionViolationError) throw error
    await sleep(PAUSE_MS)
    return undefined
  } finally {
    forget()
    signal.removeEventListener('abort', giveUp)
  }
}

/** The server sends a message or a heartbeat at least this often. After SILENCE_MS without any, the feed ends. */
const HEARTBEAT_MS = 1000
const SILENCE_MS = 3 * HEARTBEAT_MS + 500
const IDLE_OR_FLOW_CONTROL = 100

/**
 * The messages that a push consumer sends to one inbox, in order and without a gap. The feed ends when it cannot
 * guarantee this any more: a message is missing, the server is silent, the connection drops, the consumer is gone, or
 * the signal aborts.
 */
class Feed implements AsyncIterable<Msg> {
  readonly inbox: string
  readonly #subscription: Subscription
  readonly #watchdog: NodeJS.Timeout
  readonly #signal: AbortSignal
  readonly #end = () => this.close()
  readonly #js: JetStream
  readonly #forgetConnection: () => void
  /** The last sequence of the consumer. */
  #lastSequence = 0
  #arrived: Msg[] = []
  readonly #wake = new Wake()
  #ended = false

  constructor(js: JetStream, signal: AbortSignal) {
    this.#js = js
    this.inbox = js.newInbox()
    this.#subscription = js.nc.subscribe(this.inbox, {
      callback: (error, message) => (error ? this.close() : this.#receive(message)),
    })
    this.#watchdog = setTimeout(this.#end, SILENCE_MS)
    this.#signal = signal
    signal.addEventListener('abort', this.#end, { once: true })
    this.#forgetConnection = js.onDisconnect(this.#end)
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Msg> {
    while (!this.#ended || this.#arrived.length > 0) {
      const batch = this.#arrived
      this.#arrived = []
      for (const message of batch) {
        if (this.#signal.aborted) return
        if (statusOf(message) === 0) yield message
        else message.respond()
      }
      if (this.#arrived.length === 0 && !this.#ended) await this.#wake.next(Number.POSITIVE_INFINITY)
    }
  }

  /** Ends the feed. Messages that have arrived can still be read, unless the signal has aborted. */
  close(): void {
    this.#ended = true
    clearTimeout(this.#watchdog)
    this.#signal.removeEventListener('abort', this.#end)
    this.#forgetConnection()
    this.#subscription.unsubscribe()
    this.#wake.poke()
  }

  #receive(message: Msg): void {
    this.#watchdog.refresh()
    switch (statusOf(message)) {
      case 0:
        return this.#receiveNext(message)
      case IDLE_OR_FLOW_CONTROL:
        return message.reply ? this.#give(message) : this.#checkHeartbeat(message)
      default:
        this.close()
    }
  }

  #receiveNext(message: Msg): void {
    const { consumerSequence } = ackMetadata(message.reply ?? '')
    if (consumerSequence !== this.#lastSequence + 1) return this.close()
    this.#lastSequence = consumerSequence
    this.#give(message)
  }

  #checkHeartbeat({ headers }: Msg): void {
    if (Number(headers?.get('Nats-Last-Consumer')) !== this.#lastSequence) return this.close()
    // The server waits for an answer to a flow control request. If all messages have been read, that request was lost.
    const stalled = headers?.get('Nats-Consumer-Stalled')
    if (stalled && this.#wake.isAwaited) this.#js.nc.publish(stalled)
  }

  /**
   * Queues a message. Flow control requests keep their place: they are answered when everything before them has been
   * read.
   */
  #give(message: Msg): void {
    this.#arrived.push(message)
    this.#wake.poke()
  }
}

const POLL_PAUSE_MS = 250

/**
 * Reads matching messages in stream order for each subject, then every later one, until the signal aborts. Begins again
 * if the stream was set back. It polls four times a second with direct reads. follow() is quicker, but it creates a
 * consumer, and a user that may create consumers can make the server write to any subject.
 */
export async function* poll(
  js: JetStream,
  stream: string,
  subjects: readonly string[],
  signal: AbortSignal,
  start: FollowOptions['start'],
): AsyncGenerator<StoredMessage> {
  const first = typeof start === 'number' ? start + 1 : 1
  const since = start instanceof Date ? start : undefined
  const seen = new Map<string, number>()
  while (!signal.aborted) {
    try {
      const delivered = Math.max(0, ...seen.values())
      if (await isSetBack(() => js.lastSequence(stream), delivered, signal)) seen.clear()
      for (const subject of subjects) {
        const before = seen.get(subject)
        const from = before === undefined ? { first, since } : { first: before + 1 }
        for await (const message of js.scan(stream, subject, from)) {
          seen.set(subject, message.sequence)
          yield message
        }
      }
    } catch (error) {
      if (js.nc.isClosed()) throw new ConnectionClosedError(`cannot read ${stream}: the NATS connection is closed`)
      if (!isPassing(error)) throw error
    }
    await pause(POLL_PAUSE_MS, signal)
  }
}
