import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { z } from 'zod'
import type { BridgeObserver, ChangeTracer } from '#bridge'
import { type KubeObject, type RunLog, resourceName } from '#contracts'
import type { RunObserver, RunStep } from '#dispatch'
import { type Span, shownKey, spanAfter, traceparentOf } from '#events'
import { UsageError } from './exit.ts'

export interface TraceKeeper extends AsyncDisposable {
  keep: ((span: FinishedSpan) => void) | undefined
  sample: (traceId: string) => boolean
}

/** Opens an exporter if OTEL_EXPORTER_OTLP_ENDPOINT is set. Otherwise it loads nothing, and traces are not exported. */
export async function openTraceKeeper(env: NodeJS.ProcessEnv, log: Logger): Promise<TraceKeeper> {
  const config = readOtlp(env)
  if (config === undefined)
    return { keep: undefined, sample: () => false, [Symbol.asyncDispose]: async () => undefined }
  const exporter = createExporter(config, log)
  const limit = config.ratio * 2 ** 32
  return {
    keep: (span) => exporter.keep(span),
    // The last digits of every trace id are random (W3C Trace Context, level 2).
    sample: (traceId) => Number.parseInt(traceId.slice(-8), 16) < limit,
    [Symbol.asyncDispose]: () => exporter[Symbol.asyncDispose](),
  }
}

/** The supported variables of OpenTelemetry's specification; others have no effect. */
const variables = z.object({
  OTEL_SDK_DISABLED: z.string().optional(),
  OTEL_EXPORTER_OTLP_ENDPOINT: z.url().optional(),
  OTEL_EXPORTER_OTLP_PROTOCOL: z.string().optional(),
  OTEL_EXPORTER_OTLP_HEADERS: z.string().optional(),
  OTEL_SERVICE_NAME: z.string().optional(),
  OTEL_RESOURCE_ATTRIBUTES: z.string().optional(),
  OTEL_TRACES_SAMPLER: z.string().default('parentbased_always_on'),
  OTEL_TRACES_SAMPLER_ARG: z.coerce.number().min(0).max(1).default(1),
})

export interface OtlpConfig {
  url: string
  headers: Record<string, string>
  resource: Record<string, string>
  /** The share of new traces that is kept, from 0 to 1. */
  ratio: number
}

/** Returns the destination of traces; undefined if no endpoint is configured. */
export function readOtlp(env: NodeJS.ProcessEnv): OtlpConfig | undefined {
  const given = Object.fromEntries(Object.entries(env).filter(([name, value]) => name in variables.shape && value))
  const parsed = variables.safeParse(given)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    const name = String(issue?.path[0])
    throw new UsageError(`${name} is ${JSON.stringify(given[name])}, which is not valid: ${issue?.message}`)
  }
  const read = parsed.data
  const endpoint = read.OTEL_EXPORTER_OTLP_ENDPOINT
  if (endpoint === undefined || read.OTEL_SDK_DISABLED === 'true') return undefined
  if (read.OTEL_EXPORTER_OTLP_PROTOCOL === 'grpc')
    throw new UsageError(
      'OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": traces are sent over HTTP; give http/json, and port 4318',
    )
  return {
    url: `${endpoint.replace(/\/$/, '')}/v1/traces`,
    headers: pairsOf(read.OTEL_EXPORTER_OTLP_HEADERS),
    resource: {
      'service.name': 'fairlead',
      ...pairsOf(read.OTEL_RESOURCE_ATTRIBUTES),
      ...(read.OTEL_SERVICE_NAME !== undefined && { 'service.name': read.OTEL_SERVICE_NAME }),
    },
    ratio: ratioOf(read.OTEL_TRACES_SAMPLER, read.OTEL_TRACES_SAMPLER_ARG),
  }
}

function ratioOf(sampler: string, arg: number): number {
  const name = sampler.replace(/^parentbased_/, '')
  if (name === 'always_on') return 1
  if (name === 'always_off') return 0
  if (name === 'traceidratio') return arg
  throw new UsageError(
    `OTEL_TRACES_SAMPLER is ${JSON.stringify(sampler)}: give always_on, always_off or traceidratio, or parentbased_ one of them`,
  )
}

/** Parses `a=b,c=d`, percent-encoded (W3C Baggage). */
const pairsOf = (text = ''): Record<string, string> =>
  Object.fromEntries(
    text.split(',').flatMap((pair) => {
      const at = pair.indexOf('=')
      return at < 1 ? [] : [[pair.slice(0, at).trim(), decodeURIComponent(pair.slice(at + 1).trim())]]
    }),
  )

/** A finished span, as it is exported. */
export interface FinishedSpan extends Span {
  name: string
  kind: 'internal' | 'producer' | 'consumer' | 'client'
  /** Epoch milliseconds. */
  start: number
  end: number
  attributes: Record<string, string | number | undefined>
  /** The error; left out after success. */
  error?: string
}

interface Tracing extends ChangeTracer {
  bridge: NonNullable<BridgeObserver['published']>
  run: RunObserver
}

/** The destination and the sampling of traces. */
interface TracingOptions {
  /** Receives finished spans. Undefined: spans are not exported, but events and logs still contain their ids. */
  keep: ((span: FinishedSpan) => void) | undefined
  /** Returns whether a new trace is kept. */
  sample: (traceId: string) => boolean
  /** What all spans have. */
  attributes?: FinishedSpan['attributes'] | undefined
  /** Epoch milliseconds. */
  now: () => number
}

/** Makes spans from the reports of bridge and dispatcher: change → queue → run → API requests. */
export function createTracing({ keep: kept, sample, attributes: common, now }: TracingOptions): Tracing {
  const keep = kept && ((span: FinishedSpan) => kept({ ...span, attributes: { ...common, ...span.attributes } }))
  const begun = new WeakMap<KubeObject, Span>()
  const waiting = new Map<string, { queuedAt: number; startedAt: number; causes: readonly string[] }>()

  return {
    begin(object) {
      const span = spanAfter(undefined, false)
      const begins = { ...span, sampled: keep !== undefined && sample(span.traceId) }
      if (begins.sampled) begun.set(object, begins)
      return traceparentOf(begins)
    },
    bridge({ ref, verb, object, outcome, ms }) {
      const span = begun.get(object)
      if (span === undefined || outcome !== 'stored') return
      const end = now()
      const attributes = { ...ofObject(object), 'k8s.resource': resourceName(ref), 'fairlead.verb': verb }
      keep?.({ ...span, name: `publish ${resourceName(ref)}`, kind: 'producer', start: end - ms, end, attributes })
    },
    run(step) {
      if (keep === undefined) return
      const id = `${step.reconciler} ${step.key}`
      const at = now()
      if (step.step === 'started')
        waiting.set(id, { queuedAt: at - step.queuedMs, startedAt: at, causes: step.causes ?? [] })
      const span = spanOf(step)
      if (step.step === 'written' && span?.sampled) keep(requestSpan(span, step, at))
      if ((step.step === 'called' || step.step === 'read' || step.step === 'performed') && span?.sampled)
        keep(functionSpan(span, step, at))
      if (step.step !== 'finished') return
      const times = waiting.get(id)
      waiting.delete(id)
      if (times === undefined || !span?.sampled) return
      const attributes = { 'fairlead.reconciler': step.reconciler, 'fairlead.key': shownKey(step.key) }
      const { queuedAt, startedAt } = times
      const causes = times.causes.length === 0 ? undefined : times.causes.join(', ')
      const queued = {
        ...span,
        spanId: spanAfter(undefined, true).spanId,
        attributes: { ...attributes, 'fairlead.causes': causes },
      }
      keep({ ...queued, name: `queue ${step.reconciler}`, kind: 'consumer', start: queuedAt, end: startedAt })
      const failed = step.result === 'error' || step.result === 'terminal' || step.result === 'fenced'
      keep({
        ...span,
        name: `run ${step.reconciler}`,
        kind: 'internal',
        start: startedAt,
        end: startedAt + step.ms,
        attributes: { ...attributes, 'fairlead.result': step.result },
        error: failed ? (step.message ?? step.result) : undefined,
      })
    },
  }
}

const NAMES = { called: 'call', read: 'read external' }

function requestSpan(span: Span, step: RunStep & { step: 'written' }, end: number): FinishedSpan {
  const { verb, resource, namespace, name, ms } = step
  const attributes = { 'k8s.resource': resource, 'k8s.namespace.name': namespace, 'k8s.object.name': name }
  return { ...span, name: `${verb} ${resource}`, kind: 'client', start: end - ms, end, attributes }
}

function functionSpan(
  span: Span,
  step: RunStep & { step: 'called' | 'read' | 'performed' },
  end: number,
): FinishedSpan {
  const { reconciler, ms, result } = step
  const name = step.step === 'performed' ? `effect ${step.kind}` : `${NAMES[step.step]} ${reconciler}`
  const error = result === 'error' ? { error: 'failed' } : {}
  return {
    ...span,
    name,
    kind: 'client',
    start: end - ms,
    end,
    attributes: { 'fairlead.reconciler': reconciler },
    ...error,
  }
}

function spanOf({ traceId, spanId, parentSpanId, sampled }: RunStep): Span | undefined {
  if (traceId === undefined || spanId === undefined || sampled === undefined) return undefined
  return { traceId, spanId, sampled, parentSpanId }
}

const ofObject = ({ metadata }: KubeObject) => ({
  'k8s.namespace.name': metadata.namespace,
  'k8s.object.name': metadata.name,
  'k8s.object.uid': metadata.uid,
})

/** The limits of the batch processor in OpenTelemetry's specification. */
const MOST_WAITING = 2048
const MOST_AT_ONCE = 512
const EVERY_MS = 5000
const RETRY_AFTER_MS = 1000
const EXPORT_TIMEOUT_MS = 10_000
const KINDS = { internal: 1, client: 3, producer: 4, consumer: 5 } as const

export interface Exporter extends AsyncDisposable {
  keep(span: FinishedSpan): void
}

/**
 * Sends spans over OTLP/HTTP as JSON (opentelemetry-proto 1.x). No run waits for it: spans that a collector rejects, or
 * accepts too slowly, are dropped, and the log has their number.
 */
export function createExporter({ url, headers, resource }: OtlpConfig, log: RunLog): Exporter {
  let waiting: FinishedSpan[] = []
  let dropped = 0
  let sending: Promise<void> = Promise.resolve()
  const timer = setInterval(() => void flush(), EVERY_MS)
  timer.unref()

  function flush(): Promise<void> {
    const spans = waiting
    waiting = []
    for (let at = 0; at < spans.length; at += MOST_AT_ONCE) {
      const batch = spans.slice(at, at + MOST_AT_ONCE)
      sending = sending.then(() => send(batch))
    }
    return sending
  }

  async function send(spans: FinishedSpan[]): Promise<void> {
    const body = JSON.stringify(requestOf(spans, resource))
    try {
      if (!(await post(body))) await sleep(RETRY_AFTER_MS).then(() => post(body, true))
    } catch (error) {
      log.warn({ err: error, url, spans: spans.length }, 'spans not exported')
    }
    if (dropped > 0) log.warn({ url, spans: dropped }, 'spans dropped: they come faster than they can be exported')
    dropped = 0
  }

  /** Returns false if the collector does not accept the spans at the moment. */
  async function post(body: string, isLast = false): Promise<boolean> {
    const signal = AbortSignal.timeout(EXPORT_TIMEOUT_MS)
    const sent = { ...headers, 'content-type': 'application/json' }
    const answer = await fetch(url, { method: 'POST', headers: sent, body, signal })
    await answer.arrayBuffer()
    if (answer.ok) return true
    if (!isLast && [429, 502, 503, 504].includes(answer.status)) return false
    throw new Error(`${url} answered ${answer.status}`)
  }

  return {
    keep(span) {
      if (waiting.length < MOST_WAITING) waiting.push(span)
      else dropped++
      if (waiting.length === MOST_AT_ONCE) void flush()
    },
    async [Symbol.asyncDispose]() {
      clearInterval(timer)
      await flush()
    },
  }
}

/** An ExportTraceServiceRequest. 64-bit integers are strings in protobuf's JSON. */
const requestOf = (spans: FinishedSpan[], resource: Record<string, string>) => ({
  resourceSpans: [
    {
      resource: { attributes: attributesOf(resource) },
      scopeSpans: [{ scope: { name: 'fairlead' }, spans: spans.map(wireSpan) }],
    },
  ],
})

const wireSpan = ({ traceId, spanId, parentSpanId, name, kind, start, end, attributes, error }: FinishedSpan) => ({
  traceId,
  spanId,
  parentSpanId,
  name,
  kind: KINDS[kind],
  startTimeUnixNano: nanos(start),
  endTimeUnixNano: nanos(Math.max(start, end)),
  attributes: attributesOf(attributes),
  status: error === undefined ? {} : { code: 2, message: error },
})

const attributesOf = (record: Record<string, string | number | undefined>) =>
  Object.entries(record).flatMap(([key, value]) =>
    value === undefined
      ? []
      : [{ key, value: typeof value === 'string' ? { stringValue: value } : { doubleValue: value } }],
  )

const nanos = (ms: number): string => String(BigInt(Math.round(ms * 1000)) * 1000n)
