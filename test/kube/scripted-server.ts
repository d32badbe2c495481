import { readFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import type { ClusterAccess } from '#kube'
import { createPki } from '../../local/pki.ts'
import { shortTempDir } from '../support/servers.ts'

export interface ScriptedServer extends AsyncDisposable {
  access: ClusterAccess
  /** In the order of their arrival. */
  requests: IncomingMessage[]
  /** How many are open now. */
  connections(): Promise<number>
}

/** For what a real API server cannot be made to do: TLS on loopback, and this handler for every request. */
export async function startScriptedServer(
  handle: (request: IncomingMessage, response: ServerResponse) => unknown,
): Promise<ScriptedServer> {
  const pki = await createPki(join(await shortTempDir(), 'pki'))
  const { certFile, keyFile } = await pki.issue('server', { cn: 'server' }, ['127.0.0.1'])
  const requests: IncomingMessage[] = []
  const server = createServer({ cert: await readFile(certFile), key: await readFile(keyFile) }, (request, response) => {
    requests.push(request)
    handle(request, response)
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as AddressInfo
  return {
    access: { server: `https://127.0.0.1:${port}`, ca: pki.caPem },
    requests,
    connections: () =>
      new Promise((done, fail) => server.getConnections((error, count) => (error ? fail(error) : done(count)))),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((done) => server.close(done))
    },
  }
}

export function json(
  response: ServerResponse,
  code: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  response.writeHead(code, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}
