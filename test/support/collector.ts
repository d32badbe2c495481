import { startHttpReceiver } from './http-receiver.ts'

interface ReceivedSpan {
  traceId: string
  spanId: string
  parentSpanId?: string
  name: string
  kind: number
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes: { key: string; value: { stringValue?: string; doubleValue?: number } }[]
  status: { code?: number; message?: string }
}

interface ExportRequest {
  resourceSpans: { resource: { attributes: unknown[] }; scopeSpans: { spans: ReceivedSpan[] }[] }[]
}

/** What an OpenTelemetry collector is to whoever exports: an address that takes spans over HTTP. */
export async function startCollector(answers: number[] = []) {
  const requests: { path: string; headers: Record<string, unknown>; body: ExportRequest }[] = []
  const spans: ReceivedSpan[] = []
  const receiver = await startHttpReceiver(({ url: path, headers, body: bytes }, response) => {
    const body = JSON.parse(bytes.toString()) as ExportRequest
    const status = answers.shift() ?? 200
    requests.push({ path, headers, body })
    if (status === 200)
      spans.push(...body.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)))
    response.writeHead(status).end('{}')
  })
  return Object.assign(receiver, { requests, spans })
}
