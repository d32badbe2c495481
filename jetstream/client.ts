import { type JetStreamManager, jetstreamManager } from '@nats-io/jetstream'
import { type Msg, type NatsConnection, nuid } from 'nats'
import { Budget } from '#primitives'
import {
  type Batches,
  type BatchLast,
  batchLast,
  type FromOptions,
  type PageFrom,
  type PageOptions,
  pageFrom,
  pageLast,
  type ScanOptions,
  scan,
} from './batches.ts'
import { ERR, isGone, JetStreamError } from './errors.ts'
import { type Headers, statusOf } from './headers.ts'
import { fromDirect, fromLeader, type StoredMessage } from './messages.ts'
import { RequestMux } from './mux.ts'
import { Outbox } from './outbox.ts'
import { Ticker } from './ticker.ts'

export interface PublishAck {
  sequence: number
  /** The Nats-Msg-Id was seen before: nothing was stored. */
  duplicate: boolean
}

interface Terms {
  timeoutMs: number
  /** Before every subject for answers. */
  inboxPrefix: string
  /** What stands for `$JS.API` where the streams are another account's. */
  apiPrefix?: string | undefined
}

interface ApiAnswer {
  error?: { code: number; err_code?: number; description?: string }
}

/**
 * nats-server closes a connection for which more than 64 MiB wait to be sent (max_pending). It counts bytes as sent when the
 * whole write to the socket is over, so it may count twice what the client still waits for (2.15: 48 MiB were too much).
 */
const INCOMING_BYTES = 24 * 2 ** 20

/** JetStream with one cheap request path for what happens once per run; administration goes through `admin`. */
export class JetStream {
  readonly nc: NatsConnection
  readonly admin: JetStreamManager
  /** For what needs no answer. */
  readonly outbox: Outbox
  /** Large reads acquire their size before the request, and dispose it after the answer. */
  readonly incoming = new Budget(INCOMING_BYTES)
  /** Once a second. */
  readonly ticker = new Ticker(1000)
  readonly #mux: RequestMux
  readonly #batches: Batches
  readonly #timeoutMs: number
  readonly #inboxPrefix: string
  readonly #onDisconnect = new Set<() => void>()
  readonly #onReconnect = new Set<() => void>()

  private constructor(nc: NatsConnection, admin: JetStreamManager, { timeoutMs, inboxPrefix, apiPrefix }: Terms) {
    this.nc = nc
    this.admin = admin
    this.outbox = new Outbox(nc)
    this.#timeoutMs = timeoutMs
    this.#inboxPrefix = inboxPrefix
    this.#mux = new RequestMux(nc, this.outbox, this.newInbox(), apiPrefix)
    this.#batches = (subject, query, isLast) => this.#mux.requestMany(subject, query, isLast, timeoutMs)
    void this.#abandonWithConnection()
  }

  static async over(nc: NatsConnection, terms: Terms): Promise<JetStream> {
    const { timeoutMs, apiPrefix } = terms
    const options = { checkAPI: false, timeout: timeoutMs * 5, ...(apiPrefix !== undefined && { apiPrefix }) }
    return new JetStream(nc, await jetstreamManager(nc, options), terms)
  }

  /** A subject for answers, that nobody else has. */
  newInbox(): string {
    return `${this.#inboxPrefix}.${nuid.next()}`
  }

  /** There is no other server: none can go away without the connection. */
  get isAlone(): boolean {
    return this.nc.info?.cluster === undefined
  }

  /** How long what need not be quick is asked for again, where nobody answers. */
  get patienceMs(): number {
    return this.#timeoutMs * 15
  }

  /** Stores a message. JetStreamError: refused, nothing stored. UnknownOutcomeError: perhaps stored. */
  async publish(subject: string, payload: Uint8Array | string, headers: Headers): Promise<PublishAck> {
    const answer = await this.#request<{ seq: number; duplicate?: boolean }>(subject, payload, headers)
    return { sequence: answer.seq, duplicate: answer.duplicate === true }
  }

  /** Confirms a delivery; resolves when the server has applied it. */
  async acknowledge(reply: string): Promise<void> {
    await this.#mux.request(reply, '+ACK', undefined, this.#timeoutMs)
  }

  /** The last message of a subject (wildcards allowed), read through the stream's leader: never stale. */
  lastOf(stream: string, subject: string): Promise<StoredMessage | undefined> {
    return this.#read(stream, { last_by_subj: subject })
  }

  /** The first message of a subject (wildcards allowed) at or after a sequence, read through the stream's leader. */
  firstFrom(stream: string, sequence: number, subject: string): Promise<StoredMessage | undefined> {
    return this.#read(stream, { seq: sequence, next_by_subj: subject })
  }

  /** The message with this sequence, read through the stream's leader. */
  bySequence(stream: string, sequence: number): Promise<StoredMessage | undefined> {
    return this.#read(stream, { seq: sequence })
  }

  /**
   * The last message of each subject that matches, in one request to any replica: on more than one replica the answer
   * may be older than what was just stored (compare upToSequence). More than the server gives in one answer (1,024
   * messages, or its max_pending bytes) is a JetStreamError with code 413.
   */
  batchLast(stream: string, subjects: string[]): Promise<BatchLast> {
    return batchLast(this.#batches, stream, subjects)
  }

  /**
   * As batchLast(), page after page in the order of the stream. A message that is stored between two pages may replace one
   * of an earlier page: the later one of a subject counts. More than 1,024 messages in all pages are a 413 as well.
   */
  pageLast(stream: string, subjects: string[], page: PageOptions): Promise<BatchLast> {
    return pageLast(this.#batches, stream, subjects, page)
  }

  /**
   * The first message of a subject (wildcards allowed) at or after a sequence, from any replica. Close to the end of the
   * stream this costs the server much less than a page, for which it counts all that match.
   */
  async nextFrom(stream: string, sequence: number, subject: string): Promise<StoredMessage | undefined> {
    const query = JSON.stringify({ seq: sequence, next_by_subj: subject })
    return await this.#direct(stream, query, (message) => fromDirect(message))
  }

  /** The messages of a subject (wildcards allowed) in stream order from a sequence on, one page, from any replica. */
  pageFrom(stream: string, subject: string, page: FromOptions): Promise<PageFrom> {
    return pageFrom(this.#batches, stream, subject, page)
  }

  /**
   * All messages of a subject (wildcards allowed) in stream order, read in pages from any replica: neither one moment
   * nor, on more than one replica, always the newest.
   */
  scan(stream: string, subject: string, options: ScanOptions = {}): AsyncGenerator<StoredMessage> {
    return scan(this.#batches, stream, subject, options)
  }

  /**
   * How many messages a subject has (wildcards allowed) from a sequence on, and the oldest of them: counted by the
   * server, a few milliseconds at 100,000. On more than one replica it may be a moment old.
   */
  async count(
    stream: string,
    subject: string,
    from = 1,
  ): Promise<{ count: number; oldest: StoredMessage | undefined }> {
    const query = JSON.stringify({ batch: 1, seq: from, next_by_subj: subject })
    const found = await this.#direct(stream, query, (message) => ({
      count: Number(message.headers?.get('Nats-Num-Pending')) + 1,
      oldest: fromDirect(message),
    }))
    return found ?? { count: 0, oldest: undefined }
  }

  /** Takes a message out of its stream; one that is not there any more is left so. */
  async remove(stream: string, sequence: number): Promise<void> {
    try {
      const query = JSON.stringify({ seq: sequence, no_erase: true })
      await this.#request(`$JS.API.STREAM.MSG.DELETE.${stream}`, query, undefined)
    } catch (error) {
      if (!isGone(error)) throw error
    }
  }

  /** The stream's last sequence as its leader knows it: what was confirmed before this call is at or below it. */
  async lastSequence(stream: string): Promise<number> {
    const subject = `$JS.API.STREAM.INFO.${stream}`
    return (await this.#request<{ state: { last_seq: number } }>(subject, '', undefined)).state.last_seq
  }

  /** The server's clock, as it was at some moment of this call. */
  async serverTime(stream: string): Promise<number> {
    const { ts } = await this.#request<{ ts: string }>(`$JS.API.STREAM.INFO.${stream}`, '', undefined)
    return Date.parse(ts)
  }

  /** Calls back each time the connection drops, until the function returned is called. */
  onDisconnect(listener: () => void): () => void {
    this.#onDisconnect.add(listener)
    return () => this.#onDisconnect.delete(listener)
  }

  /** Calls back each time the connection is there again: what was asked without it may never be answered. */
  onReconnect(listener: () => void): () => void {
    this.#onReconnect.add(listener)
    return () => this.#onReconnect.delete(listener)
  }

  /** Everything sent so far has reached the server. */
  flush(): Promise<void> {
    this.outbox.flush()
    return this.nc.flush()
  }

  async close(): Promise<void> {
    this.outbox.flush()
    await this.nc.close()
    this.#mux.abandon('the connection was closed')
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /** The first answer to a direct get; undefined: nothing matches. */
  async #direct<T>(stream: string, query: string, read: (message: Msg) => T): Promise<T | undefined> {
    const message = await this.#mux.request(`$JS.API.DIRECT.GET.${stream}`, query, undefined, this.#timeoutMs)
    const status = statusOf(message)
    if (status === 404) return undefined
    if (status !== 0) throw new JetStreamError(`read of ${stream}: ${message.headers?.description}`, status, 0)
    return read(message)
  }

  async #read(stream: string, query: object): Promise<StoredMessage | undefined> {
    try {
      const subject = `$JS.API.STREAM.MSG.GET.${stream}`
      return fromLeader(
        (await this.#request<{ message: Parameters<typeof fromLeader>[0] }>(subject, JSON.stringify(query), undefined))
          .message,
      )
    } catch (error) {
      if (error instanceof JetStreamError && error.errCode === ERR.noMessageFound) return undefined
      throw error
    }
  }

  async #request<T>(subject: string, payload: Uint8Array | string, headers: Headers | undefined): Promise<T> {
    const message = await this.#mux.request(subject, payload, headers, this.#timeoutMs)
    if (statusOf(message) === 503)
      throw new JetStreamError(`no answer on ${subject}: no such stream, or it has no leader`, 503, 0)
    const answer = JSON.parse(message.string()) as T & ApiAnswer
    if (answer.error) {
      const { code, err_code: errCode = 0, description = 'refused' } = answer.error
      throw new JetStreamError(`${subject}: ${description}`, code, errCode)
    }
    return answer
  }

  async #abandonWithConnection(): Promise<void> {
    for await (const status of this.nc.status()) {
      // What was asked while there was no connection may not have been sent at all.
      if (status.type === 'reconnect') {
        this.#mux.abandon('there was no connection to NATS when it was asked')
        for (const listener of this.#onReconnect) listener()
      }
      if (status.type !== 'disconnect') continue
      this.#mux.abandon('the connection to NATS dropped')
      for (const listener of this.#onDisconnect) listener()
    }
  }
}
