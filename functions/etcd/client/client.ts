import type { X509Certificate } from 'node:crypto'
import { type CallOptions, Connection, type EtcdEndpoint } from './connection.ts'
import { EtcdError, GRPC } from './errors.ts'
import { CALLS, type Calls, SNAPSHOT } from './messages.ts'
import { type Decoded, decode, type Encodable, encode } from './protobuf.ts'

type Request<Name extends keyof Calls> = Encodable<Calls[Name]['request']>
type Response<Name extends keyof Calls> = Decoded<Calls[Name]['response']>

/**
 * A client of one etcd endpoint. Each call needs a time-out, and rejects with EtcdError.
 *
 *     using etcd = openEtcd({ url: 'http://10.0.0.1:2379' })
 *     const { members } = await etcd.call('memberList', { linearizable: true }, { timeoutMs: 2000 })
 */
export class Etcd {
  readonly #connection: Connection

  constructor(endpoint: EtcdEndpoint) {
    this.#connection = new Connection(endpoint)
  }

  async call<Name extends keyof Calls>(
    name: Name,
    request: Request<Name>,
    options: CallOptions,
  ): Promise<Response<Name>> {
    const { path, request: question, response } = CALLS[name]
    const messages: Buffer[] = []
    for await (const message of this.#connection.call(path, encode(question, request), options)) messages.push(message)
    const [first] = messages
    if (first === undefined || messages.length > 1)
      throw new EtcdError(name, GRPC.unknown, `the answer has ${messages.length} messages instead of one`)
    return decode(response, first) as Response<Name>
  }

  /**
   * Reads the database of this one member in pieces, as `etcdctl snapshot save` writes it: the last 32 bytes are the
   * SHA-256 of all bytes before. The version is that of the storage, empty before etcd 3.6.
   */
  async *snapshot(options: CallOptions): AsyncGenerator<{ blob: Buffer; remainingBytes: number; version: string }> {
    const { path, request, response } = SNAPSHOT
    for await (const message of this.#connection.call(path, encode(request, {}), options)) {
      const { blob, remaining_bytes: remainingBytes, version } = decode(response, message)
      yield { blob, remainingBytes, version }
    }
  }

  /** The certificate of the server. Undefined without TLS, and before the first call. */
  get certificate(): X509Certificate | undefined {
    return this.#connection.certificate
  }

  close(): void {
    this.#connection.close()
  }

  [Symbol.dispose](): void {
    this.close()
  }
}

/** Returns a client, which connects with the first call. */
export const openEtcd = (endpoint: EtcdEndpoint): Etcd => new Etcd(endpoint)
