import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createSecureServer, type Server } from 'node:https'
import { type AddressInfo, connect } from 'node:net'
import type { Duplex } from 'node:stream'
import { issueFrom, newAuthority } from '#pki'

type Answer = (body: string, request: IncomingMessage, response: ServerResponse) => void

export interface CloudFront extends AsyncDisposable {
  /** The URL of the proxy. */
  url: string
  /** The PEM of the authority of all hosts. */
  ca: string
  /** The variables of a process that reaches these hosts, and no others. */
  env: Record<string, string>
  /** `host:port` of each connection. */
  connections: string[]
}

/**
 * Stands for hosts of a cloud: a proxy that leads a connection to a host to a server here. The server has a certificate for
 * the names of all hosts, and is a function or another server behind TLS.
 */
export async function startCloudFront(hosts: Record<string, Answer | URL>): Promise<CloudFront> {
  const validity = { now: new Date(), days: 1 }
  const authority = newAuthority({ cn: 'cloud' }, validity)
  const sans = Object.keys(hosts)
  const { certificate, privateKey } = issueFrom(authority, { subject: { cn: 'cloud' }, sans }, validity)
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' })
  const secure = await listening(
    createSecureServer({ cert: certificate, key }, (request, response) => {
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => chunks.push(chunk))
      request.on('end', () => {
        const answer = hosts[request.headers.host ?? '']
        if (typeof answer !== 'function') return void response.writeHead(502).end()
        answer(Buffer.concat(chunks).toString(), request, response)
      })
    }),
  )
  const connections: string[] = []
  const tunnels = new Set<Duplex>()
  const proxy = createServer()
  proxy.on('connect', ({ url = '' }: IncomingMessage, socket) => {
    connections.push(url)
    const target = hosts[url.replace(/:443$/, '')]
    if (target === undefined) return void socket.end('HTTP/1.1 502 Bad Gateway\r\n\r\n')
    const { hostname, port } = target instanceof URL ? target : { hostname: '127.0.0.1', port: secure.port }
    const onward = connect(Number(port), hostname, () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n')
      socket.pipe(onward).pipe(socket)
    })
    tunnels.add(socket).add(onward)
    socket.on('error', () => onward.destroy())
    onward.on('error', () => socket.destroy())
  })
  const front = await listening(proxy)
  const url = `http://127.0.0.1:${front.port}`
  return {
    url,
    ca: authority.certificate,
    env: { HTTPS_PROXY: url, https_proxy: url, NO_PROXY: '127.0.0.1', no_proxy: '127.0.0.1' },
    connections,
    async [Symbol.asyncDispose]() {
      for (const tunnel of tunnels) tunnel.destroy()
      for (const { server } of [front, secure]) {
        server.closeAllConnections()
        await new Promise((resolve) => server.close(resolve))
      }
    },
  }
}

async function listening<S extends Server | ReturnType<typeof createServer>>(server: S) {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { server, port: (server.address() as AddressInfo).port }
}
