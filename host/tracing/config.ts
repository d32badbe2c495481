import { z } from 'zod'
import { UsageError } from '#host/exit'

/** The supported variables of OpenTelemetry's specification; others have no effect. */
const variables = z.object({
  OTEL_SDK_DISABLED: z.string().optional(),
  OTEL_TRACES_EXPORTER: z.string().optional(),
  OTEL_EXPORTER_OTLP_ENDPOINT: z.url().optional(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: z.url().optional(),
  OTEL_EXPORTER_OTLP_PROTOCOL: z.string().optional(),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: z.string().optional(),
  OTEL_EXPORTER_OTLP_HEADERS: z.string().optional(),
  OTEL_EXPORTER_OTLP_TRACES_HEADERS: z.string().optional(),
  OTEL_EXPORTER_OTLP_TIMEOUT: z.coerce.number().int().min(1).default(10_000),
  OTEL_SERVICE_NAME: z.string().optional(),
  OTEL_RESOURCE_ATTRIBUTES: z.string().optional(),
  OTEL_TRACES_SAMPLER: z.string().default('parentbased_always_on'),
  OTEL_TRACES_SAMPLER_ARG: z.coerce.number().min(0).max(1).default(1),
})

export interface OtlpConfig {
  url: string
  headers: Record<string, string>
  timeoutMs: number
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
  const url = endpointOf(read)
  const exporters = read.OTEL_TRACES_EXPORTER?.split(',') ?? ['otlp']
  if (url === undefined || read.OTEL_SDK_DISABLED === 'true' || !exporters.includes('otlp')) return undefined
  const protocol = read.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL ?? read.OTEL_EXPORTER_OTLP_PROTOCOL
  if (protocol === 'grpc')
    throw new UsageError(
      'OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": traces are sent over HTTP; give http/json, and port 4318',
    )
  return {
    url,
    headers: pairsOf(read.OTEL_EXPORTER_OTLP_TRACES_HEADERS ?? read.OTEL_EXPORTER_OTLP_HEADERS),
    timeoutMs: read.OTEL_EXPORTER_OTLP_TIMEOUT,
    resource: {
      'service.name': 'fairlead',
      ...pairsOf(read.OTEL_RESOURCE_ATTRIBUTES),
      ...(read.OTEL_SERVICE_NAME !== undefined && { 'service.name': read.OTEL_SERVICE_NAME }),
    },
    ratio: ratioOf(read.OTEL_TRACES_SAMPLER, read.OTEL_TRACES_SAMPLER_ARG),
  }
}

type Variables = z.output<typeof variables>

function endpointOf({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: traces, OTEL_EXPORTER_OTLP_ENDPOINT: all }: Variables) {
  return traces ?? (all === undefined ? undefined : `${all.replace(/\/$/, '')}/v1/traces`)
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
