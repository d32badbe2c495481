import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { PoisonEventError, toHttp } from '#cloudevents'
import {
  ConflictError,
  EVENT_TYPES,
  FUNCTION_HEADER,
  type FunctionInput,
  type Invoke,
  namespacedName,
  type Outcome,
  REVISION_HEADER,
  RetryAfterError,
  type RunLog,
  TerminalError,
  withFields,
} from '#contracts'
import type { Reconciler } from './definition.ts'
import { toInvoke } from './invoke.ts'
import { inputIn, OtherFunctionError } from './request.ts'

export interface ServeFunctionOptions {
  /** The TCP port; 0 takes a free one. */
  port: number
  /** Default: all addresses. */
  host?: string | undefined
  log: RunLog
  /** The revision of the function, e.g. a commit. Each response contains it. */
  revision?: string | undefined
  /**
   * The size limit of a request in bytes; the server rejects a larger one before it has read all of it. Default 32 MiB.
   */
  maxBodyBytes?: number | undefined
  now?: (() => Date) | undefined
}

export interface FunctionServer {
  readonly port: number
  /**
   * Stops accepting requests. Requests under way have this time to end, in milliseconds; then their connections are
   * closed.
   */
  stop(graceMs: number): Promise<void>
}

const MAX_BODY_BYTES = 32 * 1024 * 1024
/** Longer than the idle time-out of proxies in front: the proxy must be the side that closes an idle connection. */
const KEEP_ALIVE_MS = 620_000

/** Serves a function over HTTP, as a Knative Service or elsewhere. docs/http-functions.md specifies the protocol. */
export async function serve(reconciler: Reconciler, options: ServeFunctionOptions): Promise<FunctionServer> {
  const host = new FunctionHost(reconciler, options)
  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS }, (request, response) =>
    host.handle(request, response),
  )
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(options.port, options.host, resolve)
  })
  return { port: (server.address() as AddressInfo).port, stop: (graceMs) => host.stop(server, graceMs) }
}

class FunctionHost {
  readonly #reconciler: Reconciler
  readonly #invoke: Invoke
  readonly #options: ServeFunctionOptions
  readonly #cutOff = new AbortController()
  #isStopping = false

  constructor(reconciler: Reconciler, options: ServeFunctionOptions) {
    this.#reconciler = reconciler
    this.#invoke = toInvoke(reconciler)
    this.#options = options
  }

  handle(request: IncomingMessage, response: ServerResponse): void {
    this.#endConnectionAtStop(response)
    const { revision } = this.#options
    response.setHeader(FUNCTION_HEADER, this.#reconciler.name)
    if (revision !== undefined) response.setHeader(REVISION_HEADER, revision)
    const { url = '/' } = request
    const path = URL.parse(url, 'http://function')?.pathname ?? url
    if (path === '/health/liveness') return text(response, 200, 'alive')
    if (path === '/health/readiness')
      return this.#isStopping ? text(response, 503, 'stopping') : text(response, 200, 'ready')
    if (path !== '/') return text(response, 404, `there is nothing at ${path}: POST to /`)
    if (request.method !== 'POST') {
      response.setHeader('allow', 'POST')
      return text(response, 405, `${request.method} is not for a function: POST`)
    }
    void this.#run(request, response)
  }

  async stop(server: Server, graceMs: number): Promise<void> {
    this.#isStopping = true
    const closed = new Promise<void>((resolve) => server.close(() => resolve()))
    server.closeIdleConnections()
    const end = setTimeout(() => {
      this.#cutOff.abort(new Error('the function shuts down'))
      server.closeAllConnections()
    }, graceMs)
    await closed
    clearTimeout(end)
  }

  #endConnectionAtStop(response: ServerResponse): void {
    if (this.#isStopping) response.shouldKeepAlive = false
  }

  async #run(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController()
    response.once('close', () => gone.abort(new Error('the caller is gone')))
    const { now = () => new Date(), maxBodyBytes = MAX_BODY_BYTES } = this.#options
    let { log } = this.#options
    try {
      const body = await bodyOf(request, maxBodyBytes)
      const input = inputIn({ headers: request.headers, body }, this.#reconciler, now())
      const signal = AbortSignal.any([gone.signal, this.#cutOff.signal])
      const traceparent = request.headers['traceparent'] as string | undefined
      log = withFields(log, fieldsOf(this.#reconciler.name, input, traceparent))
      const returned = await this.#invoke(input, { signal, log, ...(traceparent !== undefined && { traceparent }) })
      this.#endConnectionAtStop(response)
      answer(response, this.#reconciler.name, { ask: input.ask ?? 'reconcile', returned }, now())
    } catch (error) {
      this.#endConnectionAtStop(response)
      if (!gone.signal.aborted) answerError(response, error, log)
    }
  }
}

class TooLargeError extends Error {}

/** Returns the body of a request. Throws a TooLargeError as soon as more than `maxBytes` have arrived. */
async function bodyOf(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const tooLarge = () =>
    new TooLargeError(
      `the request is larger than ${maxBytes} bytes: select fewer objects by spec.owns and spec.related of the ` +
        'Reconciler, or lower FAIRLEAD_MAX_STATE_MIB of the dispatchers',
    )
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge()
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let bytes = 0
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= maxBytes) return chunks.push(chunk)
      request.pause()
      return reject(tooLarge())
    })
    request.once('error', reject)
    request.once('end', () => resolve(Buffer.concat(chunks)))
  })
}

/** Returns the fields that the lines of a run have in a dispatcher too, so that both can be found by the trace ID. */
function fieldsOf(reconciler: string, { object, attempt }: FunctionInput, traceparent: string | undefined): object {
  const key = object === null ? undefined : namespacedName(object.metadata)
  const traceId = traceparent?.split('-')[1]
  return { reconciler, ...(key !== undefined && { key }), attempt, ...(traceId !== undefined && { traceId }) }
}

interface Returned {
  ask: keyof typeof EVENT_TYPES
  returned: unknown
}

/** The body of the response; undefined for an empty one. */
function dataOf({ ask, returned }: Returned): object | undefined {
  if (ask === 'read') return { external: returned }
  if (ask === 'perform') return returned === null ? undefined : { result: returned }
  return Object.keys(returned as Outcome).length === 0 ? undefined : (returned as Outcome)
}

function answer(response: ServerResponse, name: string, returned: Returned, now: Date): void {
  const data = dataOf(returned)
  if (data === undefined) return void response.writeHead(204).end()
  const { headers, body } = toHttp({
    specversion: '1.0',
    id: crypto.randomUUID(),
    source: `urn:fairlead:function:${name}`,
    type: EVENT_TYPES[returned.ask].answer,
    time: now.toISOString(),
    datacontenttype: 'application/json',
    data,
  })
  response.writeHead(200, headers).end(body)
}

function answerError(response: ServerResponse, error: unknown, log: RunLog): void {
  const message = error instanceof Error ? error.message : String(error)
  if (error instanceof TooLargeError) {
    response.shouldKeepAlive = false
    return report(response, 413, { reason: 'RequestTooLarge', message })
  }
  if (error instanceof PoisonEventError) {
    if (error.reason === 'too-large') return report(response, 413, { reason: 'RequestTooLarge', message })
    return report(response, error.reason === 'unsupported-mode' ? 415 : 400, { reason: 'InvalidEvent', message })
  }
  if (error instanceof OtherFunctionError) return report(response, 421, { reason: 'OtherFunction', message })
  log.warn({ err: error }, 'the function failed')
  if (error instanceof TerminalError) return report(response, 422, { reason: error.reason, message })
  if (error instanceof ConflictError) return report(response, 409, { reason: 'Conflict', message })
  if (!(error instanceof RetryAfterError)) return report(response, 500, { message })
  // The header holds whole seconds only, so the delay is rounded up.
  response.setHeader('retry-after', Math.ceil(error.afterSeconds))
  return report(response, 429, { reason: error.reason, message })
}

function report(response: ServerResponse, code: number, body: { reason?: string; message: string }): void {
  response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

function text(response: ServerResponse, code: number, said: string): void {
  response.writeHead(code, { 'content-type': 'text/plain; charset=utf-8' }).end(`${said}\n`)
}
