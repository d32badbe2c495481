import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface ReceivedRequest {
  method: string
  url: string
  headers: IncomingMessage['headers']
  body: Buffer
}

export interface HttpReceiver extends AsyncDisposable {
  url: string
  received: ReceivedRequest[]
}

/** A real web server on loopback that writes down what it gets; gone at the end of the block. */
export async function startHttpReceiver(
  answer: (request: ReceivedRequest, response: ServerResponse) => void,
  port = 0,
): Promise<HttpReceiver> {
  const received: ReceivedRequest[] = []
  const server = createServer((incoming, response) => {
    const chunks: Buffer[] = []
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
    incoming.on('end', () => {
      const { method = '', url = '', headers } = incoming
      const request = { method, url, headers, body: Buffer.concat(chunks) }
      received.push(request)
      answer(request, response)
    })
  })
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
