import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

export interface LossyProxy extends AsyncDisposable {
  url: string
  /** From now on what goes that way is lost, and soon after the first of it the connection; the next one is whole again. */
  lose(what: 'requests' | 'answers'): void
  /** From now on each way takes so many milliseconds. */
  delay(ms: number): void
}

/** Long enough for the server to apply what reached it. */
const CUT_AFTER_MS = 30

/** A TCP proxy in front of a server, for answers that never come or come late. Each way takes `delayMs`. */
export async function startLossyProxy(target: string, { delayMs: firstDelayMs = 0 } = {}): Promise<LossyProxy> {
  let delayMs = firstDelayMs
  const { hostname, port } = new URL(target)
  let losing: 'requests' | 'answers' | undefined
  let cutting: NodeJS.Timeout | undefined
  const sockets = new Set<Socket>()
  const forward = (from: Socket, to: Socket, what: 'requests' | 'answers') => {
    sockets.add(from)
    let inOrder: Promise<void> | undefined
    from.on('data', (chunk) => {
      if (losing === what) cutting ??= setTimeout(cut, CUT_AFTER_MS)
      else if (delayMs === 0 && inOrder === undefined) to.write(chunk)
      else inOrder = Promise.all([inOrder, sleep(delayMs)]).then(() => void to.write(chunk))
    })
    from.on('error', () => from.destroy())
    from.on('close', () => {
      sockets.delete(from)
      to.destroy()
    })
  }
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname)
    forward(client, upstream, 'requests')
    forward(upstream, client, 'answers')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = () => {
    clearTimeout(cutting)
    cutting = losing = undefined
    for (const socket of sockets) socket.destroy()
  }
  return {
    url: `nats://127.0.0.1:${(server.address() as AddressInfo).port}`,
    lose(what) {
      losing = what
    },
    delay(ms) {
      delayMs = ms
    },
    async [Symbol.asyncDispose]() {
      cut()
      server.close()
      await once(server, 'close')
    },
  }
}
