import { X509Certificate } from 'node:crypto'
import type { Client } from '@grpc/grpc-js'
import { CALLS, type Calls, SNAPSHOT } from './messages.ts'
import { type Decoded, decode, type Encodable, encode, type Fields, type Message } from './protobuf.ts'

/** TLS settings in PEM. The server's certificate is always verified. */
export interface EtcdTls {
  ca: string
  cert?: string
  key?: string
  /** The name that the server's certificate must have, if it differs from the host of the URL. */
  servername?: string
}

export interface EtcdEndpoint {
  /** `http://10.0.0.1:2379`, or `https://…` with `tls`. */
  url: string
  tls?: EtcdTls | undefined
}

interface CallOptions {
  /** The time-out of the whole call, including the connection. */
  timeoutMs: number
  signal?: AbortSignal | undefined
}

/** The gRPC codes that a caller may have to distinguish. etcd's other codes are coarse, so decide on `text`. */
export const GRPC = { unknown: 2, deadlineExceeded: 4, unavailable: 14 } as const

/** Thrown if etcd refused a call or did not answer. */
export class EtcdError extends Error {
  override readonly name = 'EtcdError'
  readonly code: number
  /** The error text of etcd, such as `etcdserver: member not found`. */
  readonly text: string

  constructor(call: string, code: number, text: string, cause?: unknown) {
    super(`${call}: ${text}`, { cause })
    this.code = code
    this.text = text
  }

  /** True: the call may or may not have taken effect. Read the state before deciding. */
  get isUnknown(): boolean {
    return (
      this.code === GRPC.deadlineExceeded ||
      /timed out|connection lost|connection dropped|RST_STREAM|ECONNRESET/i.test(this.text)
    )
  }
}

type Request<Name extends keyof Calls> = Encodable<Calls[Name]['request']>
type Response<Name extends keyof Calls> = Decoded<Calls[Name]['response']>

interface Method<Question extends Message<Fields>, Answer extends Message<Fields>> {
  path: string
  request: Question
  response: Answer
}

/** The window of a stream in bytes, so that a snapshot does not wait for a round trip after every 64 KiB. */
const WINDOW = 16 * 1024 * 1024
/** The size limit of a message. Pieces of etcd's snapshots have some ten KiB, its other answers at most a few MiB. */
const MAX_BYTES = 64 * 1024 * 1024

/**
 * A client of one etcd endpoint. Each call needs a time-out, and rejects with EtcdError.
 *
 *     using etcd = openEtcd({ url: 'http://10.0.0.1:2379' })
 *     const { members } = await etcd.call('memberList', { linearizable: true }, { timeoutMs: 2000 })
 */
export class Etcd {
  readonly #endpoint: EtcdEndpoint
  #client: Promise<Client> | undefined
  #certificate: X509Certificate | undefined

  constructor(endpoint: EtcdEndpoint) {
    this.#endpoint = endpoint
  }

  async call<Name extends keyof Calls>(
    name: Name,
    request: Request<Name>,
    options: CallOptions,
  ): Promise<Response<Name>> {
    const messages: unknown[] = []
    for await (const message of this.#call(CALLS[name], request, options)) messages.push(message)
    const [first] = messages
    if (first === undefined || messages.length > 1)
      throw new EtcdError(name, GRPC.unknown, `the answer has ${messages.length} messages instead of one`)
    return first as Response<Name>
  }

  /**
   * Reads the database of this one member in pieces, as `etcdctl snapshot save` writes it: the last 32 bytes are the
   * SHA-256 of all bytes before. The version is that of the storage, empty before etcd 3.6.
   */
  async *snapshot(options: CallOptions): AsyncGenerator<{ blob: Buffer; remainingBytes: number; version: string }> {
    for await (const { blob, remaining_bytes: remainingBytes, version } of this.#call(SNAPSHOT, {}, options))
      yield { blob, remainingBytes, version }
  }

  /** Sends one message and receives any number. The call ends when the caller stops reading. */
  async *#call<Question extends Message<Fields>, Answer extends Message<Fields>>(
    { path, request, response }: Method<Question, Answer>,
    question: Encodable<Question>,
    { timeoutMs, signal }: CallOptions,
  ): AsyncGenerator<Decoded<Answer>> {
    const name = path.slice(path.lastIndexOf('/') + 1)
    const deadline = Date.now() + timeoutMs
    let cancel = () => {}
    try {
      const client = await (this.#client ??= connect(this.#endpoint))
      signal?.throwIfAborted()
      const stream = client.makeServerStreamRequest(
        path,
        (value: Encodable<Question>) => encode(request, value),
        (bytes) => decode(response, bytes),
        question,
        { deadline },
      )
      cancel = () => stream.cancel()
      signal?.addEventListener('abort', cancel)
      // A call that is cancelled ends with an error, of which nobody is told any more.
      stream.on('error', () => {})
      stream.once('metadata', () => {
        const raw = stream.getAuthContext()?.sslPeerCertificate?.raw
        this.#certificate = raw && new X509Certificate(raw)
      })
      for await (const answer of stream) yield answer as Decoded<Answer>
    } catch (error) {
      if (signal?.aborted) throw new EtcdError(name, GRPC.unknown, 'the call was aborted', signal.reason)
      const { code, details, message } = error as { code?: unknown; details?: string; message: string }
      if (code === GRPC.deadlineExceeded) throw new EtcdError(name, code, `no answer within ${timeoutMs} ms`, error)
      throw new EtcdError(name, typeof code === 'number' ? code : GRPC.unavailable, reasonIn(details ?? message), error)
    } finally {
      signal?.removeEventListener('abort', cancel)
      cancel()
    }
  }

  /** The certificate of the server. Undefined without TLS, and before the first answer. */
  get certificate(): X509Certificate | undefined {
    return this.#certificate
  }

  close(): void {
    void this.#client?.then(
      (client) => client.close(),
      () => undefined,
    )
  }

  [Symbol.dispose](): void {
    this.close()
  }
}

/** Returns the reason without the time of a failed connection: the text may be in a status, which is not to change. */
const reasonIn = (details: string): string =>
  /^No connection established\. Last error: (?:Error: )?(.*?)(?: \(\d{4}-[^)]*\))?\. Resolution note: /s.exec(
    details,
  )?.[1] ?? details

/** Loads gRPC, which only a process that calls etcd needs. */
async function connect({ url, tls }: EtcdEndpoint): Promise<Client> {
  const { Client, credentials } = await import('@grpc/grpc-js')
  const { hostname, port, protocol } = new URL(url)
  const isSecure = protocol === 'https:'
  const bytes = (pem: string | undefined): Buffer | null => (pem ? Buffer.from(pem) : null)
  const secrets = isSecure
    ? credentials.createSsl(bytes(tls?.ca), bytes(tls?.key), bytes(tls?.cert))
    : credentials.createInsecure()
  return new Client(`${hostname}:${port || (isSecure ? 443 : 80)}`, secrets, {
    ...(tls?.servername !== undefined && { 'grpc.ssl_target_name_override': tls.servername }),
    'grpc-node.flow_control_window': WINDOW,
    'grpc.max_receive_message_length': MAX_BYTES,
    // A client of its own: it shares neither a connection nor the pause after a failure with another one, it repeats no
    // call, and it goes through no proxy.
    'grpc.use_local_subchannel_pool': 1,
    'grpc.enable_retries': 0,
    'grpc.enable_http_proxy': 0,
    'grpc.service_config_disable_resolution': 1,
    'grpc.enable_channelz': 0,
  })
}

/** Returns a client, which connects with the first call. */
export const openEtcd = (endpoint: EtcdEndpoint): Etcd => new Etcd(endpoint)
