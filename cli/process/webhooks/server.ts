import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Server } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { RunLog } from '#contracts'
import { pause } from '#primitives'
import type { Resource } from '#sdk'
import { listening } from '../metrics.ts'
import { createTlsServer, type TlsFiles } from '../tls-files.ts'
import { answerAdmission, type ValidationReport } from './admission-review.ts'
import { answerConversion, brief, byKind, type ConversionReport, InvalidReviewError } from './conversion-review.ts'
import { isOfProbe } from './probe.ts'

/**
 * The API server takes objects of 3 MiB at most, and sends one in each review (1.36). Larger bodies would delay the reviews
 * of others while they are parsed.
 */
const MAX_BODY_BYTES = 8 * 2 ** 20
/**
 * In memory each takes up to 60 bytes and is copied, although it has two in a body. etcd stores 1.5 MiB of an object at most:
 * one that has more could not be read, and would break each list.
 */
const MAX_BRACKETS = 3 * 2 ** 18
/** All bodies together, from their first byte until they are answered. */
const MAX_HELD_BYTES = 16 * 2 ** 20
/** An API server has up to 600 requests at a time, each with a connection of its own while it waits for an answer. */
const MAX_CONNECTIONS = 1000
/**
 * The API server keeps connections for 90 s, some before their first request, and has to be the side that closes them: a
 * request that meets a closing connection is not repeated.
 */
const IDLE_MS = 120_000
const LIMITS = {
  keepAliveTimeout: IDLE_MS,
  headersTimeout: IDLE_MS,
  requestTimeout: IDLE_MS,
  /** The API server gives up after 10 s. */
  handshakeTimeout: 15_000,
  maxHeaderSize: 8192,
}
/** From the headers of a request to the end of its body. */
const BODY_WITHIN_MS = 10_000
/** Requests that have begun when no more are accepted. */
const LAST_ANSWERS_MS = 5000
const LOOK_MS = 50
/** What holds the process for longer delays all others. */
const SLOW_MS = 1000
const TOLD_EACH_MS = 1000

const PATH = /^\/(convert|validate)(?:\/([-a-z0-9]+))?$/

export type Refusal = 'invalid' | 'too-large' | 'late' | 'busy'

export interface WebhookObserver {
  converted(report: ConversionReport): void
  validated(report: ValidationReport): void
  refused(why: Refusal): void
}

export interface WebhookServerOptions {
  /** `host:port`, or `:port` for all addresses. */
  address: string
  files: TlsFiles
  /** The resources with conversions, `validate` or `admit`. */
  resources: readonly Resource[]
  observer: WebhookObserver
  log: RunLog
}

export interface WebhookServer {
  readonly port: number
  readonly certificateEnd: () => Date
  /** Serves on for this time, but closes each connection after its next answer. Then ends, at most 5 s later. */
  drain(ms: number): Promise<void>
}

/**
 * Serves the webhooks of the API server over HTTPS: POST /convert and POST /validate. `/convert/VERSION` is for a definition
 * that stores another version than the declared one.
 */
export async function serveWebhooks(options: WebhookServerOptions): Promise<WebhookServer> {
  const host = new WebhookHost(options)
  const { server, certificateEnd } = await createTlsServer(
    options.files,
    options.log,
    (request, response) => void host.handle(request, response),
    LIMITS,
  )
  server.timeout = IDLE_MS
  server.on('connection', (socket: Socket) => host.connected(socket))
  await listening(server, options.address)
  const { port } = server.address() as AddressInfo
  return { port, certificateEnd, drain: (ms) => host.drain(server, ms) }
}

class WebhookHost {
  readonly #options: WebhookServerOptions
  readonly #resources: ReturnType<typeof byKind>
  /** Connections without an answer, by address and port of the other side. The oldest comes first. */
  readonly #strangers = new Map<string, Socket>()
  /** The connection whose last answer is longest ago comes first. */
  readonly #known = new Map<string, Socket>()
  readonly #bodies = new HeldBodies()
  #isDraining = false
  /** When the log told last of a request that was refused. */
  #toldAt = Number.NEGATIVE_INFINITY

  constructor(options: WebhookServerOptions) {
    this.#options = options
    this.#resources = byKind(options.resources)
  }

  /** Where there are too many connections, those of clients that never ask go first. */
  connected(socket: Socket): void {
    const key = keyOf(socket)
    this.#strangers.set(key, socket)
    socket.once('close', () => this.#forget(key, socket))
    if (this.#strangers.size + this.#known.size <= MAX_CONNECTIONS) return
    const [first] = this.#strangers.size > 1 ? this.#strangers : this.#known
    if (first === undefined) return
    this.#forget(...first)
    first[1].destroy()
  }

  async handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.#isDraining) response.shouldKeepAlive = false
    const path = request.url?.split('?')[0] ?? ''
    const [, asked, storage] = PATH.exec(path) ?? []
    if (asked === undefined) return text(response, 404, `there is nothing at ${path}: POST to /convert or /validate`)
    if (request.method !== 'POST') return text(response.setHeader('allow', 'POST'), 405, 'POST a review')
    try {
      const review = reviewIn(await this.#bodies.read(request, response))
      const answer = asked === 'convert' ? await this.#convert(review, storage) : this.#validate(review)
      // The next probe has another connection, and so perhaps another process.
      if (this.#isDraining || isOfProbe(review)) response.shouldKeepAlive = false
      response.setHeader('content-type', 'application/json').end(JSON.stringify(answer))
      this.#isUsed(request.socket)
    } catch (error) {
      this.#refuse(response, error)
      request.resume()
    }
  }

  async drain(server: Server, ms: number): Promise<void> {
    this.#isDraining = true
    await pause(ms)
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    for (let waited = 0; this.#bodies.count > 0 && waited < LAST_ANSWERS_MS; waited += LOOK_MS) await pause(LOOK_MS)
    server.closeAllConnections()
    await closed
  }

  #convert(review: unknown, storage: string | undefined): Promise<object> {
    const { observer, log } = this.#options
    const tell = (report: ConversionReport) => {
      observer.converted(report)
      if (report.because !== undefined) log.warn(report, 'an object cannot be converted')
      if (report.ms > SLOW_MS) log.warn(report, 'a conversion has delayed all others')
    }
    return answerConversion(review, this.#resources, tell, storage)
  }

  #validate(review: unknown): object {
    const { observer, log } = this.#options
    return answerAdmission(review, this.#resources, (report) => {
      observer.validated(report)
      const { refusals: _, ...logged } = report
      if (report.result === 'failure') log.error(logged, 'validate or admit has failed, and the write is refused')
      if (report.result === 'refused') log.info(logged, 'a write is refused')
      if (report.ms > SLOW_MS) log.warn(logged, 'validate or admit has delayed all others')
    })
  }

  #isUsed(socket: Socket): void {
    const key = keyOf(socket)
    const connection = this.#strangers.get(key) ?? this.#known.get(key)
    if (connection === undefined) return
    this.#forget(key, connection)
    this.#known.set(key, connection)
  }

  #forget(key: string, socket: Socket): void {
    for (const some of [this.#strangers, this.#known]) if (some.get(key) === socket) some.delete(key)
  }

  #refuse(response: ServerResponse, error: unknown): void {
    const { observer, log } = this.#options
    if (response.destroyed) return
    const { message } = error as Error
    const why = error instanceof RefusedError ? error.why : 'invalid'
    observer.refused(why)
    // Whoever reaches the port may ask. The metric counts all.
    const now = performance.now()
    if (now - this.#toldAt > TOLD_EACH_MS) {
      this.#toldAt = now
      log.info({ why, because: brief(message) }, 'a request is refused')
    }
    // The API server waits for as long, and asks again, up to ten times.
    if (why === 'busy') response.setHeader('retry-after', 1)
    text(response, CODES[why], message)
  }
}

function reviewIn(body: Buffer): unknown {
  if (bracketsOf(body) > MAX_BRACKETS)
    throw new RefusedError('too-large', `a request has at most ${MAX_BRACKETS} objects and lists`)
  try {
    return JSON.parse(body.toString())
  } catch {
    // The error of JSON.parse quotes the body.
    throw new InvalidReviewError('the body is no JSON')
  }
}

const [OBJECT, LIST, QUOTE, ESCAPE] = [0x7b, 0x5b, 0x22, 0x5c]

/** Those of texts are only text. */
function bracketsOf(body: Buffer): number {
  let brackets = 0
  let isText = false
  for (let at = 0; at < body.length; at++) {
    const byte = body[at]
    if (byte === QUOTE) isText = !isText
    else if (byte === ESCAPE) at++
    else if (!isText && (byte === OBJECT || byte === LIST)) brackets++
  }
  return brackets
}

const CODES: Record<Refusal, number> = { invalid: 400, late: 408, 'too-large': 413, busy: 429 }

const keyOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`

function text(response: ServerResponse, code: number, said: string): void {
  response.writeHead(code, { 'content-type': 'text/plain; charset=utf-8' }).end(`${said}\n`)
}

class RefusedError extends Error {
  readonly why: Refusal
  constructor(why: Refusal, message: string) {
    super(message)
    this.why = why
  }
}

/** The bodies of requests, in memory until they are answered. If they are too much, the largest one goes. */
class HeldBodies {
  readonly #held = new Map<ServerResponse, { bytes: number; drop: () => void }>()
  #bytes = 0

  /** The requests that are not answered yet. */
  get count(): number {
    return this.#held.size
  }

  /** Resolves with the whole body. Its bytes count until the response is closed. */
  read(request: IncomingMessage, response: ServerResponse): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const refuse = (why: Refusal, message: string) => () => {
        this.#release(response)
        reject(new RefusedError(why, message))
      }
      const tooLarge = refuse('too-large', `a request has at most ${MAX_BODY_BYTES} bytes`)
      const late = refuse('late', `the body was not there within ${BODY_WITHIN_MS / 1000} s`)
      const held = { bytes: 0, drop: refuse('busy', 'too much is asked at the same time: ask again') }
      if (Number(request.headers['content-length'] ?? 0) > MAX_BODY_BYTES) return tooLarge()
      const timer = setTimeout(late, BODY_WITHIN_MS)
      this.#held.set(response, held)
      response.once('close', () => {
        clearTimeout(timer)
        this.#release(response)
      })
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => {
        // What comes after a refusal is not kept.
        if (!this.#held.has(response)) return
        held.bytes += chunk.length
        this.#bytes += chunk.length
        chunks.push(chunk)
        if (held.bytes > MAX_BODY_BYTES) tooLarge()
        else if (this.#bytes > MAX_HELD_BYTES) this.#largest()?.drop()
      })
      request.once('error', reject)
      request.once('end', () => {
        clearTimeout(timer)
        held.drop = () => response.destroy()
        resolve(Buffer.concat(chunks))
      })
      return undefined
    })
  }

  #largest(): { drop: () => void } | undefined {
    return [...this.#held.values()].sort((one, other) => other.bytes - one.bytes)[0]
  }

  #release(response: ServerResponse): void {
    this.#bytes -= this.#held.get(response)?.bytes ?? 0
    this.#held.delete(response)
  }
}
