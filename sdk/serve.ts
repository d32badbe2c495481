import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type CloudEvent, fromHttp, PoisonEventError, type ReceivedHttp, toHttp } from '#cloudevents'
import {
  ConflictError,
  EVENT_TYPES,
  FUNCTION_HEADER,
  type FunctionInput,
  type Invoke,
  type KubeObject,
  namespacedName,
  type Outcome,
  type PerformInput,
  placeOf,
  REVISION_HEADER,
  RetryAfterError,
  type RunInput,
  type RunLog,
  TerminalError,
  withFields,
} from '#contracts'
import { CONFIG_FOLDER } from '#spec'
import { readConfigFiles } from './config-files.ts'
import type { External, Reconciler } from './definition.ts'
import { toInvoke } from './invoke.ts'

/** A function as the server calls it, in any language. */
export interface ServedFunction {
  /** The name of the Reconciler. */
  name: string
  invoke: Invoke
  /** The kind of its objects. Left out: any. */
  kind?: string
  /** The values that each call of its external system gets. */
  config?: External['config'] | undefined
}

export interface ServeFunctionOptions {
  /** The TCP port; 0 takes a free one. */
  port: number
  /** Default: all addresses. */
  host?: string | undefined
  log: RunLog
  /** The folder with a file for each value of the function's configuration. Default: /var/run/fairlead/config. */
  config?: string | undefined
  /** The revision of the function, e.g. a commit. Each response contains it. */
  revision?: string | undefined
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

/** The server rejects a larger request before it has read all of it. */
const MAX_BODY_BYTES = 32 * 1024 * 1024
/** Longer than the idle time-out of proxies in front: the proxy must be the side that closes an idle connection. */
const KEEP_ALIVE_MS = 620_000

/** Serves a function of this process over HTTP, as a Knative Service or elsewhere. */
export const serve = (reconciler: Reconciler, options: ServeFunctionOptions): Promise<FunctionServer> => {
  const { name, for: kind, external } = reconciler
  return serveCalls({ name, invoke: toInvoke(reconciler), kind: kind.kind, config: external?.config }, options)
}

/** Serves a function in any language over HTTP. docs/http-functions.md specifies the protocol. */
export async function serveCalls(served: ServedFunction, options: ServeFunctionOptions): Promise<FunctionServer> {
  const host = new FunctionHost(served, options)
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
  readonly #served: ServedFunction
  readonly #options: ServeFunctionOptions
  readonly #cutOff = new AbortController()
  #isStopping = false

  constructor(served: ServedFunction, options: ServeFunctionOptions) {
    this.#served = served
    this.#options = options
  }

  handle(request: IncomingMessage, response: ServerResponse): void {
    this.#endConnectionAtStop(response)
    const { revision } = this.#options
    response.setHeader(FUNCTION_HEADER, this.#served.name)
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
    const { name, invoke } = this.#served
    const { now = () => new Date(), config: folder = CONFIG_FOLDER } = this.#options
    let { log } = this.#options
    try {
      const body = await bodyOf(request)
      const input = inputIn({ headers: request.headers, body }, this.#served, now())
      const signal = AbortSignal.any([gone.signal, this.#cutOff.signal])
      const traceparent = request.headers['traceparent'] as string | undefined
      log = withFields(log, fieldsOf(name, input, traceparent))
      const declared = input.ask === undefined ? undefined : this.#served.config
      const config = await readConfigFiles(declared, folder)
      const context = { signal, log, ...(traceparent !== undefined && { traceparent }), ...(config && { config }) }
      const returned = await invoke(input, context)
      this.#endConnectionAtStop(response)
      answer(response, name, { ask: input.ask ?? 'reconcile', returned }, now())
    } catch (error) {
      this.#endConnectionAtStop(response)
      if (!gone.signal.aborted) answerError(response, error, log)
    }
  }
}

class TooLargeError extends Error {}

/** Returns the body of a request. Throws a TooLargeError as soon as more than `maxBytes` have arrived. */
async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const tooLarge = () =>
    new TooLargeError(
      `the request is larger than ${MAX_BODY_BYTES} bytes: select fewer objects by spec.owns and spec.related of the ` +
        'Reconciler, or lower FAIRLEAD_MAX_STATE_MIB of the dispatchers',
    )
  if (Number(request.headers['content-length'] ?? 0) > MAX_BODY_BYTES) throw tooLarge()
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let bytes = 0
    request.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= MAX_BODY_BYTES) return chunks.push(chunk)
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
  const place = placeOf(error)
  if (error instanceof TerminalError) return report(response, 422, { reason: error.reason, message, place })
  if (error instanceof ConflictError) return report(response, 409, { reason: 'Conflict', message, place })
  if (!(error instanceof RetryAfterError)) return report(response, 500, { message, place })
  // The header holds whole seconds only, so the delay is rounded up.
  response.setHeader('retry-after', Math.ceil(error.afterSeconds))
  return report(response, 429, { reason: error.reason, message, place })
}

interface Report {
  reason?: string
  message: string
  /** Where the function has thrown the error: `TypeError at src/website.ts:12:5`. */
  place?: string | undefined
}

function report(response: ServerResponse, code: number, body: Report): void {
  response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

function text(response: ServerResponse, code: number, said: string): void {
  response.writeHead(code, { 'content-type': 'text/plain; charset=utf-8' }).end(`${said}\n`)
}

/** The URL of a Reconciler leads to the server of another function. */
export class OtherFunctionError extends Error {}

/** The request types of a dispatcher: a decision, the state of the external system, or an effect. */
const ASKED_TYPE = /^dev\.fairlead\.(reconcile|read|perform)$/

/** The event type of an object, by Fairlead or by Knative's ApiServerSource. */
const OBJECT_TYPE = /^(?:dev\.fairlead\.resource|dev\.knative\.apiserver\.resource)\.(\w+)$/

/** Returns the input of the function from a request: the full input of a dispatcher, or a single object. */
function inputIn(request: ReceivedHttp, served: ServedFunction, now: Date): FunctionInput {
  const event = fromHttp(request)
  const [, ask] = ASKED_TYPE.exec(event.type) ?? []
  if (ask !== undefined) {
    demandOwnReconciler(event, served)
    return askedInput(event, ask)
  }
  const [, verb] = OBJECT_TYPE.exec(event.type) ?? []
  if (verb === undefined)
    throw unsupported(
      `an event of type ${event.type} is nothing to reconcile: send dev.fairlead.reconcile, or an object's`,
    )
  return aloneInput(event, verb, served, now)
}

/** The name of the reconciler is the last segment of the source in a dispatcher's request. */
const RECONCILER_SOURCE = /\/reconcilers\/([^/]+)$/

function demandOwnReconciler({ source }: CloudEvent, { name }: ServedFunction): void {
  const [, asked = name] = RECONCILER_SOURCE.exec(source) ?? []
  if (asked !== name)
    throw new OtherFunctionError(`this is ${name}, not ${asked}: give the URL of ${asked} in spec.invoke.http.url`)
}

function askedInput({ data }: CloudEvent, ask: string): FunctionInput {
  const { ask: _, effect, ...input } = (data ?? {}) as Partial<PerformInput>
  const run = runInput(input)
  if (ask === 'reconcile') return run
  if (ask === 'read') return { ...run, ask }
  if (typeof effect?.kind !== 'string') throw unsupported('an effect has a `kind`')
  return { ...run, ask: 'perform', effect }
}

function runInput({ object, owned, related, attempt, now, ...rest }: Partial<RunInput>): Omit<RunInput, 'ask'> {
  if (object === undefined || typeof now !== 'string' || Number.isNaN(Date.parse(now)))
    throw unsupported('the data of a run has `object` (null when it is gone) and `now`')
  return { finalizing: false, ...rest, object, owned: owned ?? {}, related: related ?? {}, attempt: attempt ?? 0, now }
}

/** The input for a single object, for trials behind a trigger: it contains no owned objects. */
function aloneInput({ data, dataref }: CloudEvent, verb: string, { kind }: ServedFunction, now: Date): RunInput {
  const object = data as KubeObject | undefined
  if (dataref !== undefined || typeof object?.metadata?.name !== 'string')
    throw unsupported('the event has only a reference to its object, and a function cannot look it up')
  if (kind !== undefined && object.kind !== kind)
    throw unsupported(`the function is for ${kind}, not for ${object.kind}`)
  const isGone = verb === 'deleted' || verb === 'delete'
  return {
    object: isGone ? null : object,
    owned: {},
    related: {},
    attempt: 0,
    now: now.toISOString(),
    finalizing: false,
  }
}

const unsupported = (message: string): TerminalError => new TerminalError(message, { reason: 'UnsupportedEvent' })
