import type { Logger } from 'pino'
import { readOtlp } from './config.ts'
import type { FinishedSpan } from './spans.ts'

export { createTracing } from './spans.ts'

export interface TraceKeeper extends AsyncDisposable {
  keep: ((span: FinishedSpan) => void) | undefined
  sample: (traceId: string) => boolean
}

/** Opens an exporter if OTEL_EXPORTER_OTLP_ENDPOINT is set. Otherwise it loads nothing, and traces are not exported. */
export async function openTraceKeeper(env: NodeJS.ProcessEnv, log: Logger): Promise<TraceKeeper> {
  const config = readOtlp(env)
  if (config === undefined)
    return { keep: undefined, sample: () => false, [Symbol.asyncDispose]: async () => undefined }
  const { createExporter } = await import('./otlp.ts')
  const exporter = createExporter(config, log)
  const limit = config.ratio * 2 ** 32
  return {
    keep: (span) => exporter.keep(span),
    // The last digits of every trace id are random (W3C Trace Context, level 2).
    sample: (traceId) => Number.parseInt(traceId.slice(-8), 16) < limit,
    [Symbol.asyncDispose]: () => exporter[Symbol.asyncDispose](),
  }
}
