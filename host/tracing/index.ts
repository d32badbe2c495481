import type { Logger } from 'pino'
import { readOtlp } from './config.ts'
import type { FinishedSpan } from './spans.ts'

export { createTracing } from './spans.ts'

export interface TraceKeeper extends AsyncDisposable {
  keep: ((span: FinishedSpan) => void) | undefined
  sample: (traceId: string) => boolean
}

/** An exporter, where OTEL_EXPORTER_OTLP_ENDPOINT says where to; else nothing is loaded and nobody keeps traces. */
export async function openTraceKeeper(env: NodeJS.ProcessEnv, log: Logger): Promise<TraceKeeper> {
  const config = readOtlp(env)
  if (config === undefined)
    return { keep: undefined, sample: () => false, [Symbol.asyncDispose]: async () => undefined }
  const { createExporter } = await import('./otlp.ts')
  const exporter = createExporter(config, log)
  const limit = config.ratio * 2 ** 32
  return {
    keep: (span) => exporter.keep(span),
    // The last digits are random in every trace id (W3C Trace Context, level 2).
    sample: (traceId) => Number.parseInt(traceId.slice(-8), 16) < limit,
    [Symbol.asyncDispose]: () => exporter[Symbol.asyncDispose](),
  }
}
