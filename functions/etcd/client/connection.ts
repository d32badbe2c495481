import type { X509Certificate } from 'node:crypto'
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from 'node:http2'
import { TLSSocket } from 'node:tls'
import { EtcdError, GRPC } from './errors.ts'
import { frame, framesIn } from './frames.ts'

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

export interface CallOptions {
  /** The time-out of the whole call, including the connection. */
  timeoutMs: number
  signal?: AbortSignal | undefined
}

/** The window of a stream in bytes, so that a snapshot does not wait for a round trip after every 64 KiB. */
const WINDOW = 16 * 1024 * 1024

/** The part of gRPC on HTTP/2 that etcd needs: one message is sent, and any number is received. */
export class Connection {
  readonly #session: ClientHttp2Session
  /** The certificate of the server. Undefined: the server has not presented one. */
  certificate: X509Certificate | undefined
  #failure: Error | undefined

  constructor({ url, tls }: EtcdEndpoint) {
    this.#session = connect(url, { ...tls, settings: { initialWindowSize: WINDOW } })
    this.#session.once('connect', (_, socket) => {
      this.certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined
      if (!this.#session.destroyed) this.#session.setLocalWindowSize(WINDOW)
    })
    // The streams of the session end with the same error. Without a listener, the error would end the process.
    this.#session.on('error', (error) => (this.#failure = error))
  }

  /** Makes a call. Throws EtcdError. The call ends when the caller stops reading. */
  async *call(path: string, request: Buffer, { timeoutMs, signal }: CallOptions): AsyncGenerator<Buffer> {
    const name = path.slice(path.lastIndexOf('/') + 1)
    const end = AbortSignal.any([AbortSignal.timeout(timeoutMs), ...(signal ? [signal] : [])])
    const ended = (): EtcdError | undefined => {
      if (signal?.aborted) return new EtcdError(name, GRPC.unknown, 'the call was aborted', signal.reason)
      return end.aborted ? new EtcdError(name, GRPC.deadlineExceeded, `no answer within ${timeoutMs} ms`) : undefined
    }
    let stream: ClientHttp2Stream | undefined
    try {
      end.throwIfAborted()
      stream = this.#open(path, request, timeoutMs, end)
      const status = statusOf(stream)
      yield* framesIn(stream)
      const { code, text } = await status
      if (code !== 0) throw new EtcdError(name, code, text)
    } catch (error) {
      if (error instanceof EtcdError) throw error
      throw ended() ?? new EtcdError(name, GRPC.unavailable, (this.#failure ?? (error as Error)).message, error)
    } finally {
      stream?.close(constants.NGHTTP2_CANCEL)
    }
  }

  #open(path: string, request: Buffer, timeoutMs: number, signal: AbortSignal): ClientHttp2Stream {
    const headers = {
      ':method': 'POST',
      ':path': path,
      'content-type': 'application/grpc',
      te: 'trailers',
      'grpc-timeout': `${timeoutMs}m`,
    }
    const stream = this.#session.request(headers, { signal })
    stream.end(frame(request))
    return stream
  }

  close(): void {
    this.#session.destroy()
  }
}

/**
 * Returns the gRPC status, which is in the trailers, or in the headers if there is no message. Settles when the stream
 * ends.
 */
function statusOf(stream: ClientHttp2Stream): Promise<{ code: number; text: string }> {
  return new Promise((resolve) => {
    let found: IncomingHttpHeaders = {}
    stream.once('response', (headers) => (found = headers))
    stream.once('trailers', (trailers) => (found = { ...found, ...trailers }))
    stream.once('close', () => {
      const { ':status': http, 'grpc-status': code, 'grpc-message': text = '' } = found
      if (code !== undefined) return resolve({ code: Number(code), text: unescaped(String(text)) })
      const what = Number(http) === 200 ? 'the connection lost the end of the answer' : `HTTP status ${String(http)}`
      resolve({ code: GRPC.unavailable, text: what })
    })
  })
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}
