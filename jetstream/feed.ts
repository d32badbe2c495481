import type { Msg, Subscription } from 'nats'
import type { JetStream } from './client.ts'
import { statusOf } from './headers.ts'
import { ackMetadata } from './messages.ts'

/** The server sends a message or a heartbeat at least this often. After SILENCE_MS without any, the feed ends. */
export const HEARTBEAT_MS = 1000
const SILENCE_MS = 3 * HEARTBEAT_MS + 500
const IDLE_OR_FLOW_CONTROL = 100

/**
 * The messages that a push consumer sends to one inbox, in order and without a gap. The feed ends when it cannot
 * guarantee this any more: a message is missing, the server is silent, the connection drops, the consumer is gone, or
 * the signal aborts.
 */
export class Feed implements AsyncIterable<Msg> {
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
  #wake: (() => void) | undefined
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
      if (this.#arrived.length === 0 && !this.#ended) await new Promise<void>((wake) => (this.#wake = wake))
    }
  }

  /** Ends the feed. Messages that have arrived can still be read, unless the signal has aborted. */
  close(): void {
    this.#ended = true
    clearTimeout(this.#watchdog)
    this.#signal.removeEventListener('abort', this.#end)
    this.#forgetConnection()
    this.#subscription.unsubscribe()
    this.#wake?.()
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
    if (stalled && this.#wake) this.#js.nc.publish(stalled)
  }

  /**
   * Queues a message. Flow control requests keep their place: they are answered when everything before them has been
   * read.
   */
  #give(message: Msg): void {
    this.#arrived.push(message)
    this.#wake?.()
    this.#wake = undefined
  }
}
