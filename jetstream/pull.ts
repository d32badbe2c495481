import { type Msg, nuid, type Subscription } from 'nats'
import type { JetStream } from './client.ts'
import { plainHeaders, statusOf } from './headers.ts'
import { ackMetadata, type Delivery } from './messages.ts'

export interface PullOptions {
  stream: string
  consumer: string
  /** How many messages can be handled right now; asked again at each poke(). */
  free: () => number
  onMessage: (delivery: Delivery) => void
  /** How long the server keeps one pull request; at least twice the heartbeat of 2 s. */
  expiresMs?: number
}

interface PullRequest {
  remaining: number
  /** Silent until then, it is taken for dead: the server says something at least every HEARTBEAT_MS. */
  deadline: number
}

/** A leader that went away takes its pull requests along without a word; only the silence tells. */
const HEARTBEAT_MS = 2000
const SILENCE_MS = 5000

/**
 * Pulls exactly as many messages as there are free slots: nothing is prefetched into a process that cannot start it.
 * Each request has its own reply subject below one inbox, so that what is outstanding is always known. After a
 * reconnect the inbox is a new one: late answers to requests that the dead connection took along find no interest.
 */
export class Puller {
  readonly #js: JetStream
  readonly #options: Required<PullOptions>
  readonly #requests = new Map<string, PullRequest>()
  readonly #check: NodeJS.Timeout
  #inbox = ''
  #subscription: Subscription | undefined
  #next = 0
  #stopped = false
  #scheduled = false

  constructor(js: JetStream, options: PullOptions) {
    this.#js = js
    this.#options = { expiresMs: 30_000, ...options }
    this.#openInbox()
    this.#check = setInterval(() => this.#dropExpired(), 1000)
    void this.#reopenOnReconnect()
    this.poke()
  }

  /** A slot became free: ask for more at the end of this turn of the event loop. */
  poke(): void {
    if (this.#scheduled || this.#stopped) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      this.#pull()
    })
  }

  /** Stops asking. What the server has sent already still arrives, until this resolves. */
  async drain(): Promise<void> {
    this.#stopped = true
    clearInterval(this.#check)
    const { nc } = this.#js
    if (!nc.isClosed()) await this.#subscription?.drain()
  }

  #pull(): void {
    if (this.#stopped || this.#js.nc.isClosed()) return
    let outstanding = 0
    for (const request of this.#requests.values()) outstanding += request.remaining
    const batch = this.#options.free() - outstanding
    if (batch <= 0) return
    const { stream, consumer, expiresMs } = this.#options
    const id = (this.#next++).toString(36)
    this.#requests.set(id, { remaining: batch, deadline: performance.now() + SILENCE_MS })
    const body = JSON.stringify({ batch, expires: expiresMs * 1e6, idle_heartbeat: HEARTBEAT_MS * 1e6 })
    this.#js.nc.publish(`$JS.API.CONSUMER.MSG.NEXT.${stream}.${consumer}`, body, { reply: this.#inbox + id })
  }

  #receive(message: Msg): void {
    const id = message.subject.slice(this.#inbox.length)
    const request = this.#requests.get(id)
    const status = statusOf(message)
    if (status >= 400) {
      // 408 expired, 409 consumer deleted or limits reached, 503 no leader: the request is over.
      this.#requests.delete(id)
      if (status === 408) this.poke()
      return
    }
    if (request) request.deadline = performance.now() + SILENCE_MS
    if (status !== 0) return
    if (request && --request.remaining === 0) this.#requests.delete(id)
    this.#options.onMessage(this.#delivery(message))
  }

  #delivery(message: Msg): Delivery {
    const reply = message.reply ?? ''
    const { nc } = this.#js
    return {
      subject: message.subject,
      headers: plainHeaders(message.headers),
      data: message.data,
      arrivedAt: performance.now(),
      ...ackMetadata(reply),
      ack: () => nc.publish(reply, '+ACK'),
      ackConfirmed: () => this.#js.acknowledge(reply),
      nak: (delayMs) =>
        nc.publish(reply, delayMs === undefined ? '-NAK' : `-NAK {"delay":${Math.round(delayMs * 1e6)}}`),
    }
  }

  #openInbox(): void {
    this.#subscription?.unsubscribe()
    this.#inbox = `_INBOX.${nuid.next()}.`
    this.#requests.clear()
    this.#subscription = this.#js.nc.subscribe(`${this.#inbox}*`, {
      callback: (error, message) => (error ? undefined : this.#receive(message)),
    })
  }

  /** Requests that ended in an error are asked again here, once a second: no hot loop against a missing consumer. */
  #dropExpired(): void {
    const now = performance.now()
    for (const [id, request] of this.#requests) if (request.deadline < now) this.#requests.delete(id)
    this.poke()
  }

  async #reopenOnReconnect(): Promise<void> {
    for await (const status of this.#js.nc.status()) {
      if (this.#stopped) return
      if (status.type !== 'reconnect') continue
      this.#openInbox()
      this.poke()
    }
  }
}
