import { Agent as HttpAgent, request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { doubling, retry } from '#primitives'
import { type Connection, type DescribedObject, type Range, StoreError } from './types.ts'

/** How long a connection may be silent before it is closed. */
const SILENCE_MS = 60_000
export const TRIES = 6
export const FIRST_PAUSE_MS = 250
export const LAST_PAUSE_MS = 8000
/**
 * Returns a short time-out for clean-up after a failure, so that the report of the failure does not wait for a silent
 * store.
 */
export const soon = (): AbortSignal => AbortSignal.timeout(5000)

/** The size limit of answers that are not objects. XML and JSON of lists have at most 5,000 entries. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024

export interface HttpRequest {
  method: string
  /** The URL with path and query as they are sent. */
  url: URL
  headers: Record<string, string>
  body?: Uint8Array
  signal?: AbortSignal
}

export interface HttpAnswer {
  status: number
  headers: IncomingHttpHeaders
  text: string
}

/** Whether a status is temporary: overload, time-out, or a gateway without its server. */
export const isPassing = (status: number): boolean =>
  status === 408 || status === 429 || status === 500 || status === 502 || status === 503 || status === 504

/** Returns the error that corresponds to an unsuccessful answer. */
export type ErrorOf = (answer: HttpAnswer, what: string) => StoreError

/** The request for an object or bucket before it is signed. */
export interface RequestOptions {
  query?: Record<string, string>
  headers?: Record<string, string>
  body?: Uint8Array
  signal?: AbortSignal
}

/** Builds the request of each attempt, because signatures contain the time. */
export type Prepare = () => HttpRequest | Promise<HttpRequest>

/** An HTTP/1.1 client with keep-alive, which trusts the authorities of the store. It does not follow redirects. */
export class HttpClient {
  readonly #plain = new HttpAgent({ keepAlive: true })
  readonly #secure: HttpsAgent

  constructor({ ca }: Pick<Connection, 'ca'> = {}) {
    this.#secure = new HttpsAgent({ keepAlive: true, ...(ca !== undefined && { ca }) })
  }

  /**
   * Returns the answer with its whole body, whatever its status, after retries of temporary failures and lost
   * connections. Not for objects.
   */
  async answer(prepare: Prepare, what: string): Promise<HttpAnswer> {
    return this.#retried(what, prepare, async (message) => {
      const { statusCode = 0, headers } = message
      const chunks: Buffer[] = []
      let size = 0
      for await (const chunk of message as AsyncIterable<Buffer>) {
        size += chunk.length
        if (size > MAX_ANSWER_BYTES)
          throw new StoreError('refused', `${what}: the answer has over ${MAX_ANSWER_BYTES} bytes`)
        chunks.push(chunk)
      }
      return { status: statusCode, headers, text: Buffer.concat(chunks).toString() }
    })
  }

  /** Returns the answer if its status is a success or in `accept`; otherwise throws the error of the store. */
  async done(prepare: Prepare, what: string, errorOf: ErrorOf, accept: readonly number[] = []): Promise<HttpAnswer> {
    const answer = await this.answer(prepare, what)
    if ((answer.status >= 200 && answer.status < 300) || accept.includes(answer.status)) return answer
    throw errorOf(answer, what)
  }

  /** Sends one attempt, without retries. */
  async once(request: HttpRequest): Promise<HttpAnswer> {
    const message = await this.#send(request)
    const chunks = await message.toArray()
    return { status: message.statusCode ?? 0, headers: message.headers, text: Buffer.concat(chunks).toString() }
  }

  /** Returns the answer as a stream. The same retries apply until its headers arrive. */
  stream(prepare: Prepare, what: string): Promise<IncomingMessage> {
    return this.#retried(what, prepare, (message) => Promise.resolve(message))
  }

  async #retried<T extends object>(
    what: string,
    prepare: Prepare,
    read: (message: IncomingMessage) => Promise<T>,
  ): Promise<T> {
    const next = doubling(FIRST_PAUSE_MS, LAST_PAUSE_MS)
    let tries = 0
    let signal: AbortSignal | undefined
    const attempt = async () => {
      tries++
      const request = await prepare()
      ;({ signal } = request)
      const message = await this.#send(request)
      if (!isPassing(message.statusCode ?? 0) || tries === TRIES) return read(message)
      message.resume()
      throw new PassingStatus(message.statusCode ?? 0)
    }
    try {
      return await retry(attempt, {
        pauseMs: (error) =>
          tries < TRIES && !(error instanceof StoreError) && signal?.aborted !== true ? next() : undefined,
      })
    } catch (cause) {
      signal?.throwIfAborted()
      if (cause instanceof StoreError) throw cause
      throw new StoreError('unavailable', `${what}: no answer after ${tries} tries: ${textOf(cause)}`, { cause })
    }
  }

  #send({ method, url, headers, body, signal }: HttpRequest): Promise<IncomingMessage> {
    const isSecure = url.protocol === 'https:'
    const send = isSecure ? httpsRequest : httpRequest
    const length = body === undefined ? {} : { 'content-length': String(body.length) }
    return new Promise((resolve, reject) => {
      const request = send(url, {
        method,
        headers: { ...headers, ...length },
        agent: isSecure ? this.#secure : this.#plain,
        ...(signal && { signal }),
      })
      request.setTimeout(SILENCE_MS, () => request.destroy(new Error(`silent for ${SILENCE_MS / 1000} s`)))
      request.once('response', resolve)
      request.once('error', reject)
      request.end(body)
    })
  }
}

class PassingStatus extends Error {
  constructor(status: number) {
    super(`status ${status}`)
  }
}

/**
 * Returns the text of an error. The code of a Node.js connection error is more informative than its message, which may
 * be empty.
 */
function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const { code } = error as NodeJS.ErrnoException
  const first = error instanceof AggregateError ? textOf(error.errors[0]) : error.message
  return code === undefined || first.includes(code) ? first : `${code} ${first}`
}

export const rangeHeader = ({ start, length }: Range): string =>
  `bytes=${start}-${length === undefined ? '' : start + length - 1}`

/** Reads all bytes of an object. Throws if the connection ends early. */
export async function* received(
  http: HttpClient,
  prepare: Prepare,
  what: string,
  errorOf: ErrorOf,
): AsyncGenerator<Uint8Array> {
  const message = await http.stream(prepare, what)
  const { statusCode: status = 0, headers } = message
  if (status !== 200 && status !== 206) {
    const chunks = (await message.toArray()) as Buffer[]
    throw errorOf({ status, headers, text: Buffer.concat(chunks).toString() }, what)
  }
  const expected = Number(headers['content-length'] ?? Number.NaN)
  let size = 0
  try {
    for await (const chunk of message as AsyncIterable<Buffer>) {
      size += chunk.length
      yield chunk
    }
  } catch (cause) {
    throw new StoreError('unavailable', `${what}: the connection was lost after ${size} of ${expected} bytes`, {
      cause,
    })
  }
  if (!Number.isNaN(expected) && size !== expected)
    throw new StoreError('unavailable', `${what}: ended after ${size} of ${expected} bytes`)
}

/** The metadata that identifies an upload, so that an upload whose answer got lost can be recognized. */
export const UPLOAD = 'fairlead-upload'

/** Returns the object in an answer to HEAD. `prefix` is the beginning of the headers with its metadata. */
export function describedBy(key: string, { headers }: HttpAnswer, prefix: string): DescribedObject {
  const metadata = Object.entries(headers).flatMap(([name, value]) =>
    name.startsWith(prefix) ? [[name.slice(prefix.length), String(value)]] : [],
  )
  return { key, size: Number(headers['content-length']), metadata: Object.fromEntries(metadata) }
}

/**
 * Makes an upload visible. If the answer got lost, the metadata of the stored object show whether this upload made it.
 */
export async function publish(
  commit: () => Promise<void>,
  mark: string,
  head: () => Promise<DescribedObject | undefined>,
): Promise<void> {
  try {
    await commit()
  } catch (error) {
    const isOurs = (await head().catch(() => undefined))?.metadata[UPLOAD] === mark
    if (!isOurs) throw error
  }
}
