import { createServer, type IncomingHttpHeaders, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/**
 * What becomes of a request: `busy` is answered with 503, `cut` loses its connection before the server has seen it, `lost`
 * when the server has done it; `half` loses it in the middle of the answer; `silent` never gets one; `flipped` arrives with
 * another first byte. An object is the answer itself.
 */
export type Fault =
  | 'busy'
  | 'cut'
  | 'lost'
  | 'half'
  | 'silent'
  | 'flipped'
  | { status: number; body: string; headers?: Record<string, string> }

export interface FaultyProxy extends AsyncDisposable {
  url: string
  /** `METHOD path?query` of all that came, in order. */
  requests: string[]
}

/** An HTTP proxy in front of a real server. Requests keep their host, so that their signatures hold. */
export async function startFaultyProxy(
  target: string,
  faultOf: (request: string, nth: number, headers: IncomingHttpHeaders) => Fault | undefined,
): Promise<FaultyProxy> {
  const { hostname, port } = new URL(target)
  const requests: string[] = []
  const server = createServer((incoming, response): void => {
    const { method = '', url = '', headers } = incoming
    const what = `${method} ${url}`
    const nth = requests.filter((one) => one === what).length + 1
    requests.push(what)
    const fault = faultOf(what, nth, headers)
    if (fault === 'silent') return void incoming.resume()
    if (fault === 'busy') return void incoming.resume().on('end', () => response.writeHead(503).end('busy'))
    if (fault === 'cut') return void incoming.destroy()
    if (typeof fault === 'object')
      return void incoming.resume().on('end', () => response.writeHead(fault.status, fault.headers).end(fault.body))
    const onward = request({ hostname, port, method, path: url, headers }, (answer) =>
      give(answer, response, fault, (url) => url.replace(target, proxyUrl())),
    )
    onward.on('error', () => incoming.destroy())
    if (fault === 'flipped') incoming.once('data', (chunk: Buffer) => (chunk[0] = (chunk[0] ?? 0) ^ 1))
    incoming.pipe(onward)
  })
  const proxyUrl = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: proxyUrl(),
    requests,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function give(
  answer: IncomingMessage,
  response: ServerResponse,
  fault: 'lost' | 'half' | 'flipped' | undefined,
  redirected: (url: string) => string,
): void {
  if (fault === 'lost') return void answer.resume().on('end', () => response.destroy())
  const { location } = answer.headers
  // Where a server names itself, the client stays with the proxy.
  const headers = { ...answer.headers, ...(location !== undefined && { location: redirected(location) }) }
  response.writeHead(answer.statusCode ?? 0, headers)
  if (fault !== 'half') return void answer.pipe(response)
  answer.once('data', (chunk: Buffer) => response.write(chunk, () => response.destroy()))
}
