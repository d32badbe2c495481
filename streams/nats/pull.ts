import type { Msg, Subscription } from 'nats'
import type { JetStream } from './client.ts'
import { ackMetadata, type Delivery, plainHeaders, statusOf } from './messages.ts'

export interface PullOptions {
  stream: string
  consumer: string
  /** Returns how many messages may be on their way now. Called again at each poke(). */
  free: () => number
  onMessage: (delivery: Delivery) => void
  /** Whether messages are known to be available: a request that finds none then ends at once instead of waiting. */
  expected?: () => boolean
  /** Called if the server has no more messages, or had none for the duration of a heartbeat. */
  onEmpty?: () => void
  /** Called after each change of the number of requested messages that have not arrived. */
  onOutstanding?: () => void
  /** Whether a prompt onEmpty() matters: the server then reports every 2 s that it has no messages. */
  attentive?: () => boolean
}

interface PullRequest {
  reply: string
  subscription: Subscription
  remaining: number
  /** Without a heartbeat for this long, the request counts as lost. */
  silenceMs: number
  deadline: number
}

/**
 * How long the server keeps a request. A process that is stopped keeps its connection, and until its requests have expired,
 * messages go to it instead of others.
 */
const EXPIRES_MS = 10_000
/**
 * The interval of heartbeats. In a cluster, a leader that stops drops its pull requests silently, so only missing
 * heartbeats show it.
 */
const HEARTBEAT_MS = 2000
/** The number of heartbeats after which a silent request counts as lost. */
const SILENCE = 2.5

const DEFAULTS = {
  expected: () => false,
  attentive: () => false,
  onEmpty: () => undefined,
  onOutstanding: () => undefined,
}

/**
 * Pulls as many messages as there are free slots, and never more, so that a process holds no message that it cannot start. Each
 * request has a subscription of its own, because a delivered message shows the subject under which it is stored, not
 * the request that it answers. Without this, the number of outstanding messages would be unknown. After a reconnect,
 * the requests of the lost connection are given up, and late answers to them find no subscription.
 */
export class Puller {
  readonly #js: JetStream
  readonly #options: Required<PullOptions>
  readonly #inbox: string
  readonly #requests = new Set<PullRequest>()
  /**
   * Subscriptions whose requests were answered in full, or have expired. No more messages can arrive there, so the next
   * request may use them.
   */
  readonly #answered: PullRequest[] = []
  /** The ends of requests that were given up. */
  readonly #givenUp = new Set<Promise<unknown>>()
  readonly #stopLooking: () => void
  readonly #stopListening: () => void
  #next = 0
  #outstanding = 0
  #stopped = false
  #scheduled = false

  constructor(js: JetStream, options: PullOptions) {
    this.#js = js
    this.#inbox = `${js.newInbox()}.`
    this.#options = { ...DEFAULTS, ...options }
    this.#stopLooking = js.ticker.on(() => this.#dropExpired())
    this.#stopListening = js.onReconnect(() => this.#startAnew())
    this.poke()
  }

  /** The number of requested messages that have not arrived. */
  get outstanding(): number {
    return this.#outstanding
  }

  /** Requests more messages at the end of this turn of the event loop, because a slot became free. */
  poke(): void {
    if (this.#scheduled || this.#stopped) return
    this.#scheduled = true
    this.#js.outbox.atEndOfTurn(() => {
      this.#scheduled = false
      this.pull()
    })
  }

  /** Requests more messages now, if there are free slots and requests for less than half of them. */
  pull(): void {
    if (this.#stopped || this.#js.nc.isClosed()) return
    const { stream, consumer, free, expected, attentive } = this.#options
    const batch = free() - this.outstanding
    // A cluster replicates each request. While half of the free slots are covered, the others wait to be asked for together.
    if (batch <= 0 || batch < this.outstanding) return
    const heartbeatMs = this.#js.isSingleServer && !attentive() ? EXPIRES_MS / 2 : HEARTBEAT_MS
    const waiting = { batch, expires: EXPIRES_MS * 1e6, idle_heartbeat: heartbeatMs * 1e6 }
    const body = JSON.stringify(expected() ? { batch, no_wait: true } : waiting)
    const { reply } = this.#expect(batch, heartbeatMs * SILENCE)
    this.#js.outbox.send(`$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`, body, { reply })
  }

  /**
   * Ends all requests, because no slot is free any more. A message that is given back would otherwise be the answer to
   * the next of them at once. Messages that the server has sent already still arrive.
   */
  giveUp(): void {
    if (this.#stopped || this.#js.nc.isClosed()) return
    for (const { subscription } of this.#requests) {
      const ended: Promise<unknown> = subscription
        .drain()
        .catch(() => undefined)
        .finally(() => this.#givenUp.delete(ended))
      this.#givenUp.add(ended)
    }
    this.#requests.clear()
    this.#expectMore(-this.#outstanding)
  }

  /** Stops requesting. Messages that the server has sent already still arrive until this resolves. */
  async drain(): Promise<void> {
    this.#stopped = true
    this.#stopLooking()
    this.#stopListening()
    if (this.#js.nc.isClosed()) return
    for (const { subscription } of this.#answered) subscription.unsubscribe()
    await Promise.all([...this.#givenUp, ...[...this.#requests].map(({ subscription }) => subscription.drain())])
  }

  #expect(batch: number, silenceMs: number): PullRequest {
    const request = this.#answered.pop() ?? this.#open()
    request.remaining = batch
    request.silenceMs = silenceMs
    request.deadline = performance.now() + silenceMs
    this.#requests.add(request)
    this.#expectMore(batch)
    return request
  }

  #expectMore(messages: number): void {
    this.#outstanding += messages
    this.#options.onOutstanding()
  }

  #open(): PullRequest {
    const reply = this.#inbox + (this.#next++).toString(36)
    const subscription = this.#js.nc.subscribe(reply, {
      callback: (error, message) => (error ? undefined : this.#receive(request, message)),
    })
    const request = { reply, subscription, remaining: 0, silenceMs: 0, deadline: 0 }
    return request
  }

  #end(request: PullRequest): void {
    this.#forget(request)
    request.subscription.unsubscribe()
  }

  /** Returns false if the request was answered or given up. */
  #forget(request: PullRequest): boolean {
    if (!this.#requests.delete(request)) return false
    this.#expectMore(-request.remaining)
    return true
  }

  #receive(request: PullRequest, message: Msg): void {
    const status = statusOf(message)
    if (status >= 400) {
      // 404 no messages, 408 expired, 409 consumer deleted or limits reached, 503 no leader: the request has ended.
      if (status > 408) return this.#end(request)
      if (this.#forget(request)) this.#answered.push(request)
      this.#options.onEmpty()
      return this.poke()
    }
    request.deadline = performance.now() + request.silenceMs
    if (status !== 0) return this.#options.onEmpty()
    if (this.#requests.has(request)) {
      this.#expectMore(-1)
      if (--request.remaining === 0) {
        this.#requests.delete(request)
        this.#answered.push(request)
      }
    }
    this.#options.onMessage(this.#delivery(message))
  }

  #delivery(message: Msg): Delivery {
    const reply = message.reply ?? ''
    const { outbox } = this.#js
    return {
      subject: message.subject,
      headers: plainHeaders(message),
      data: message.data,
      arrivedAt: performance.now(),
      ...ackMetadata(reply),
      ack: () => outbox.send(reply, '+ACK'),
      ackConfirmed: () => this.#js.acknowledge(reply),
      nak: (delayMs) =>
        outbox.send(reply, delayMs === undefined ? '-NAK' : `-NAK {"delay":${Math.round(delayMs * 1e6)}}`),
    }
  }

  /**
   * Repeats requests that ended in an error, once a second, so that a missing consumer causes no busy loop. Also sends
   * requests that are needed because time has passed.
   */
  #dropExpired(): void {
    const now = performance.now()
    for (const request of this.#requests) if (request.deadline < now) this.#end(request)
    if (this.#requests.size === 0 || this.#options.attentive()) this.poke()
  }

  #startAnew(): void {
    for (const request of this.#requests) this.#end(request)
    this.poke()
  }
}
