import { setTimeout as sleep } from 'node:timers/promises'
import type { RunLog } from '#contracts'
import type { OtlpConfig } from './config.ts'
import type { FinishedSpan } from './spans.ts'

/** The limits of the batch processor in OpenTelemetry's specification. */
const MOST_WAITING = 2048
const MOST_AT_ONCE = 512
const EVERY_MS = 5000
const RETRY_AFTER_MS = 1000
const KINDS = { internal: 1, client: 3, producer: 4, consumer: 5 } as const

export interface Exporter extends AsyncDisposable {
  keep(span: FinishedSpan): void
}

/**
 * Sends spans over OTLP/HTTP as JSON (opentelemetry-proto 1.x). No run waits for it: spans that a collector rejects, or
 * accepts too slowly, are dropped, and the log has their number.
 */
export function createExporter({ url, headers, timeoutMs, resource }: OtlpConfig, log: RunLog): Exporter {
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
    const signal = AbortSignal.timeout(timeoutMs)
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
  ...(parentSpanId !== undefined && { parentSpanId }),
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
