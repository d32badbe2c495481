import { mkdtemp, readFile, rm } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ClusterAccess } from '#kube'
import { createPki } from '../../packages/lab/pki.ts'

export interface ScriptedServer extends AsyncDisposable {
  access: ClusterAccess
  /** The requests in the order of their arrival. */
  requests: IncomingMessage[]
  /** How many are open now. */
  connections(): Promise<number>
}

/** For what a real API server cannot be made to do: TLS on loopback, and this handler for every request. */
export async function startScriptedServer(
  handle: (request: IncomingMessage, response: ServerResponse) => unknown,
): Promise<ScriptedServer> {
  const { ca, cert, key } = await certificates()
  const requests: IncomingMessage[] = []
  const server = createServer({ cert, key }, (request, response) => {
    requests.push(request)
    handle(request, response)
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as AddressInfo
  return {
    access: { server: `https://127.0.0.1:${port}`, ca },
    requests,
    connections: () =>
      new Promise((done, fail) => server.getConnections((error, count) => (error ? fail(error) : done(count)))),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((done) => server.close(done))
    },
  }
}

async function certificates(): Promise<{ ca: string; cert: Buffer; key: Buffer }> {
  const dir = await mkdtemp(join(tmpdir(), 'fl-scripted-'))
  const pki = await createPki(dir)
  const { certFile, keyFile } = await pki.issue('server', { cn: 'server' }, ['127.0.0.1'])
  const [cert, key] = await Promise.all([readFile(certFile), readFile(keyFile)])
  await rm(dir, { recursive: true })
  return { ca: pki.caPem, cert, key }
}

export function json(
  response: ServerResponse,
  code: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(code, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}
