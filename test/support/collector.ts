import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

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
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (chunk: Buffer) => (text += chunk.toString()))
    request.on('end', () => {
      const body = JSON.parse(text) as ExportRequest
      const status = answers.shift() ?? 200
      requests.push({ path: request.url ?? '', headers: request.headers, body })
      if (status === 200)
        spans.push(...body.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)))
      response.writeHead(status).end('{}')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    spans,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
