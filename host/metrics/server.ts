import { createServer, type Server } from 'node:http'
import type { Server as NetServer } from 'node:net'
import type { Registry } from 'prom-client'
import type { BridgeStatus } from '#bridge'
import { UsageError } from '#host/exit'
import { bridgeGauges } from './bridge.ts'

/** Parses `host:port`, or `:port` for all addresses. */
export function parseAddress(address: string): { host: string | undefined; port: number } {
  const match = /^(.*):(\d{1,5})$/.exec(address)
  const port = Number(match?.[2])
  if (!match || port > 65_535)
    throw new UsageError(`"${address}" is not an address to listen on: give host:port, such as 127.0.0.1:8080`)
  return { host: match[1] === '' ? undefined : match[1]?.replaceAll(/[[\]]/g, ''), port }
}

/** Serves GET /metrics, /healthz and /readyz. /readyz fails while `health` reports troubles. */
export async function serveMetrics(
  address: string,
  registry: Registry,
  { status, troubles }: { status: () => BridgeStatus | undefined; troubles: () => string[] },
): Promise<Server> {
  bridgeGauges(registry, status)
  const server = createServer((request, response) => {
    const answer = (code: number, body: string, type = 'text/plain; charset=utf-8') =>
      response.writeHead(code, { 'content-type': type }).end(body)
    if (request.url === '/healthz') return answer(200, 'ok\n')
    if (request.url === '/readyz') {
      const found = troubles()
      return found.length === 0 ? answer(200, 'ok\n') : answer(503, `${found.join('\n')}\n`)
    }
    if (request.url !== '/metrics') return answer(404, 'GET /metrics, /healthz or /readyz\n')
    registry.metrics().then(
      (text) => answer(200, text, registry.contentType),
      (error: Error) => answer(500, `${error.message}\n`),
    )
    return undefined
  })
  await listening(server, address)
  return server
}

/** Resolves when the server listens on `host:port` or `:port`. Throws a UsageError if it cannot. */
export async function listening(server: NetServer, address: string): Promise<void> {
  const { host, port } = parseAddress(address)
  await new Promise<void>((resolve, reject) => {
    const refused = ({ message }: Error) => reject(new UsageError(`cannot listen on ${address}: ${message}`))
    server.once('error', refused).listen(port, host, () => resolve())
  })
}
