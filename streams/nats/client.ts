import { type JetStreamManager, jetstreamManager } from '@nats-io/jetstream'
import { type ConnectionOptions, connect, type Msg, type NatsConnection, nuid, PermissionViolationError } from 'nats'
import { Budget } from '#primitives'
import {
  type Batches,
  type FromOptions,
  type LastOfEach,
  lastOfEach,
  type PageFrom,
  type PageOptions,
  pageFrom,
  type ScanOptions,
  scan,
} from './batches.ts'
import { ERR, isGone, JetStreamError } from './errors.ts'
import { fromDirect, fromLeader, type Headers, type StoredMessage, statusOf } from './messages.ts'
import { Outbox, RequestMux, Ticker } from './mux.ts'

export interface PublishAck {
  sequence: number
  /** True: the Nats-Msg-Id was seen before, and nothing was stored. */
  duplicate: boolean
}

interface Terms {
  timeoutMs: number
  /** The beginning of every subject for answers. */
  inboxPrefix: string
  /** The replacement of `$JS.API` if the streams belong to another account. */
  apiPrefix?: string
}

interface ApiAnswer {
  error?: { code: number; err_code?: number; description?: string }
}

/**
 * nats-server closes a connection for which more than 64 MiB wait to be sent (max_pending). It counts bytes as sent
 * when the whole write to the socket has ended, so it may count twice the bytes that the client still waits for. With
 * nats-server 2.15, 48 MiB were too much.
 */
const INCOMING_BYTES = 24 * 2 ** 20

/** A JetStream client with a cheap request path for operations that each run needs. `admin` offers administration. */
export class JetStream {
  readonly nc: NatsConnection
  readonly admin: JetStreamManager
  /** Publishes messages that need no answer. */
  readonly outbox: Outbox
  /** A budget for large reads: acquire their size before the request, and dispose it after the answer. */
  readonly incoming = new Budget(INCOMING_BYTES)
  /** Ticks once a second. */
  readonly ticker = new Ticker(1000)
  readonly #mux: RequestMux
  readonly #batches: Batches
  readonly #timeoutMs: number
  readonly #inboxPrefix: string
  readonly #onDisconnect = new Listeners()
  readonly #onReconnect = new Listeners()
  readonly #onRefusal = new Listeners<[PermissionViolationError]>()

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

  /** Returns a unique subject for answers. */
  newInbox(): string {
    return `${this.#inboxPrefix}.${nuid.next()}`
  }

  /** Whether NATS has only one server: it cannot stop without the connection closing. */
  get isSingleServer(): boolean {
    return this.nc.info?.cluster === undefined
  }

  /** How long requests that need not be quick are repeated while NATS does not answer, in milliseconds. */
  get patienceMs(): number {
    return this.#timeoutMs * 15
  }

  /**
   * Stores a message. Throws JetStreamError if it was refused and not stored, and UnknownOutcomeError if it may have
   * been stored.
   */
  async publish(subject: string, payload: Uint8Array | string, headers: Headers): Promise<PublishAck> {
    const answer = await this.#request<{ seq: number; duplicate?: boolean }>(subject, payload, headers)
    return { sequence: answer.seq, duplicate: answer.duplicate === true }
  }

  /** Acknowledges a delivery, and resolves when the server has applied it. */
  async acknowledge(reply: string): Promise<void> {
    await this.#mux.request(reply, '+ACK', undefined, this.#timeoutMs)
  }

  /** Reads the last message of a subject (wildcards allowed) through the stream's leader: never stale. */
  lastOf(stream: string, subject: string): Promise<StoredMessage | undefined> {
    return this.#read(stream, { last_by_subj: subject })
  }

  /**
   * Reads the first message of a subject (wildcards allowed) at or after a sequence: through the stream's leader, never
   * stale, or from any replica. Close to the end of the stream this costs the server much less than a page, for which it
   * counts all matching messages.
   */
  async nextFrom(
    stream: string,
    sequence: number,
    subject: string,
    through: 'leader' | 'any replica',
  ): Promise<StoredMessage | undefined> {
    const query = { seq: sequence, next_by_subj: subject }
    if (through === 'leader') return this.#read(stream, query)
    return this.#direct(stream, JSON.stringify(query), (message) => fromDirect(message))
  }

  /** Reads the message with this sequence through the stream's leader. */
  bySequence(stream: string, sequence: number): Promise<StoredMessage | undefined> {
    return this.#read(stream, { seq: sequence })
  }

  /**
   * Reads the last message of each matching subject from any replica, at most 1,024 of them: more are a JetStreamError with
   * code 413. With more than one replica, the answer may be older than messages that were just stored (compare
   * upToSequence). With a `page`, one request reads one page, in the order of the stream. A message that is stored between
   * two pages may replace one of an earlier page: the later message of a subject counts. Without a page, all messages must
   * fit into one answer, which is limited to the server's max_pending bytes: otherwise this is a 413 as well.
   */
  lastOfEach(stream: string, subjects: string[], page?: PageOptions): Promise<LastOfEach> {
    return lastOfEach(this.#batches, stream, subjects, page)
  }

  /**
   * Reads one page of the messages of a subject (wildcards allowed), in stream order from a sequence on, from any
   * replica.
   */
  pageFrom(stream: string, subject: string, page: FromOptions): Promise<PageFrom> {
    return pageFrom(this.#batches, stream, subject, page)
  }

  /**
   * Reads all messages of a subject (wildcards allowed) in stream order, in pages from any replica. The messages are
   * not from a single moment, and with more than one replica not always the newest.
   */
  scan(stream: string, subject: string, options: ScanOptions = {}): AsyncGenerator<StoredMessage> {
    return scan(this.#batches, stream, subject, options)
  }

  /**
   * Returns the number of messages of a subject (wildcards allowed) from a sequence on, and the oldest of them. The
   * server counts them, in a few milliseconds at 100,000. With more than one replica, the result may be a moment old.
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

  /** Deletes a message from its stream. Does nothing if it no longer exists. */
  async remove(stream: string, sequence: number): Promise<void> {
    try {
      const query = JSON.stringify({ seq: sequence, no_erase: true })
      await this.#request(`$JS.API.STREAM.MSG.DELETE.${stream}`, query, undefined)
    } catch (error) {
      if (!isGone(error)) throw error
    }
  }

  /**
   * Returns the stream's last sequence from its leader: all messages that were confirmed before this call have this
   * sequence or a lower one.
   */
  async lastSequence(stream: string): Promise<number> {
    return (await this.#info(stream)).state.last_seq
  }

  /** Returns the server's clock at a moment during this call, in epoch milliseconds. */
  async serverTime(stream: string): Promise<number> {
    return Date.parse((await this.#info(stream)).ts)
  }

  /** Returns the bytes in a stream, and the number at which it rejects messages. Undefined: it does not exist. */
  usage(stream: string): Promise<StreamUsage | undefined> {
    return this.#info(stream).then(usageIn, undefinedIfNoStream)
  }

  async #info(stream: string): Promise<StreamAnswer> {
    return ofLeader(stream, await this.#request<StreamAnswer>(`$JS.API.STREAM.INFO.${stream}`, '', undefined))
  }

  /** Calls the listener each time the connection drops. Returns a function that removes the listener. */
  onDisconnect(listener: () => void): () => void {
    return this.#onDisconnect.add(listener)
  }

  /** Calls the listener after each reconnect: earlier requests may never be answered. Returns as above. */
  onReconnect(listener: () => void): () => void {
    return this.#onReconnect.add(listener)
  }

  /** Calls the listener for each request that NATS does not permit, and so never answers. Returns as above. */
  onRefusal(listener: (error: PermissionViolationError) => void): () => void {
    return this.#onRefusal.add(listener)
  }

  /**
   * Sends a request to other clients of NATS, and collects its answers until `isLast`. The time-out is for each next answer.
   * Throws UnknownOutcomeError without one, and JetStreamError with code 503 if nobody listens.
   */
  async ask(
    subject: string,
    payload: Uint8Array | string,
    isLast: (answer: Msg) => boolean,
    timeoutMs: number,
  ): Promise<Msg[]> {
    const isOver = (answer: Msg) => statusOf(answer) === 503 || isLast(answer)
    const answers = await this.#mux.requestMany(subject, payload, isOver, timeoutMs)
    if (answers.some((answer) => statusOf(answer) === 503))
      throw new JetStreamError(`nobody listens on ${subject}`, 503, 0)
    return answers
  }

  /** Resolves when everything sent so far has reached the server. */
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

  /** Returns the first answer to a direct get. Undefined: no message matches. */
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
      if (status.type === 'error' && status.error instanceof PermissionViolationError)
        this.#onRefusal.call(status.error)
      // Requests that were made without a connection may not have been sent at all.
      if (status.type === 'reconnect') {
        this.#mux.abandon('there was no connection to NATS when it was asked')
        this.#onReconnect.call()
      }
      if (status.type !== 'disconnect') continue
      this.#mux.abandon('the connection to NATS dropped')
      this.#onDisconnect.call()
    }
  }
}

export interface StreamUsage {
  bytes: number
  /** Undefined: no limit, or the stream drops its oldest messages at the limit. */
  maxBytes: number | undefined
}

/** The part of the answer of `$JS.API.STREAM.INFO` that is used. */
export interface StreamAnswer {
  ts: string
  state: { last_seq: number; bytes: number }
  config: { discard: string; max_bytes: number }
  /** Left out by a server without a cluster. */
  cluster?: { leader?: string; replicas?: { name: string }[] }
}

/**
 * Returns an answer to STREAM.INFO. A replica that knows no leader at the moment answers too, with what it has itself,
 * which may be old: this throws a JetStreamError with code 503, which is passing.
 */
export function ofLeader<Answer extends Pick<StreamAnswer, 'cluster'>>(stream: string, answer: Answer): Answer {
  if (isFromLeader(answer)) return answer
  throw new JetStreamError(`stream ${stream}: the server that answered knows no leader`, 503, 0)
}

/** A server lists the replicas besides itself, and itself too while it knows no leader. */
export const isFromLeader = ({ cluster }: Pick<StreamAnswer, 'cluster'>): boolean =>
  cluster === undefined || (!!cluster.leader && !cluster.replicas?.some(({ name }) => name === cluster.leader))

const usageIn = ({ state, config }: StreamAnswer): StreamUsage => ({
  bytes: state.bytes,
  maxBytes: config.discard === 'new' && config.max_bytes > 0 ? config.max_bytes : undefined,
})

function undefinedIfNoStream(error: unknown): undefined {
  if (!(error instanceof JetStreamError) || error.errCode !== ERR.streamNotFound) throw error
}

/** Functions that are called at each event. */
class Listeners<Args extends unknown[] = []> {
  readonly #all = new Set<(...args: Args) => void>()

  /** Returns a function that removes the listener. */
  add(listener: (...args: Args) => void): () => void {
    this.#all.add(listener)
    return () => this.#all.delete(listener)
  }

  call(...args: Args): void {
    for (const listener of this.#all) listener(...args)
  }
}

export interface ConnectOptions {
  /** `nats://host:port`, or a comma-separated list. A user and password, or a token, may stand before the `@`. */
  servers: string
  /** The name of the connection in the server's list. */
  name: string
  /** How long one request waits before its outcome counts as unknown, in milliseconds. */
  timeoutMs?: number
  /** The beginning of subjects for answers. A user who may subscribe there sees all answers. Default `_INBOX`. */
  inboxPrefix?: string
  /** The replacement of `$JS.API` if the streams belong to another account. */
  apiPrefix?: string
  /** Options of the NATS client, such as a credentials file or TLS. */
  options?: Omit<ConnectionOptions, 'servers' | 'name'>
}

/** Thrown if NATS cannot be reached, or refuses this user. */
export class NatsUnreachableError extends Error {
  override readonly name = 'NatsUnreachableError'
}

/** Connects once, and then reconnects without limit. Throws NatsUnreachableError if NATS does not answer now. */
export async function connectJetStream({
  servers,
  name,
  timeoutMs = 2000,
  inboxPrefix = '_INBOX',
  apiPrefix,
  options,
}: ConnectOptions): Promise<JetStream> {
  const nc = await connect({
    name,
    servers: servers.split(',').map((server) => server.trim().replace(CREDENTIALS, '$1')),
    ...credentialsIn(servers),
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    reconnectJitter: 100,
    // A server that does not answer is left after 4 to 6 s.
    pingInterval: 2000,
    maxPingOut: 2,
    timeout: 3000,
    noAsyncTraces: true,
    inboxPrefix,
    ...options,
  }).catch((cause: Error) => {
    throw new NatsUnreachableError(`cannot connect to NATS at ${withoutSecrets(servers)}: ${cause.message}`, { cause })
  })
  return JetStream.over(nc, { timeoutMs, inboxPrefix, apiPrefix })
}

const CREDENTIALS = /^([a-z]+:\/\/|)([^@/]*)@/

/** Returns the credentials in the addresses. The client accepts them only as options, the same for all addresses. */
function credentialsIn(servers: string): Pick<ConnectionOptions, 'user' | 'pass' | 'token'> {
  const [, , credentials] = CREDENTIALS.exec(servers.trim()) ?? []
  if (credentials === undefined) return {}
  const [user = '', pass] = credentials.split(/:(.*)/s).map(unescaped)
  return pass === undefined ? { token: user } : { user, pass }
}

/** Decodes a text. An unescaped percent sign, which an address should not have, stays unchanged. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** Removes credentials. A password may contain any character, so everything before the last `@` is removed. */
const withoutSecrets = (servers: string): string => servers.replace(/^([a-z]+:\/\/)?.*@/s, '$1…@')
