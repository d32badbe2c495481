import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

export interface LossyProxy extends AsyncDisposable {
  url: string
  /** From now on what goes that way is lost, and soon after the first of it the connection; the next one is whole again. */
  lose(what: 'requests' | 'answers'): void
  /** From now on each way takes so many milliseconds. */
  delay(ms: number): void
  /** From now on so many bytes of requests go on in a second, one after the other. */
  narrow(bytesPerSecond: number): void
  /** While it hangs, connections stay open and new ones are accepted, and nothing passes. Afterwards all of them are cut. */
  hang(isHanging: boolean): void
  /** The connections that were accepted so far. */
  readonly accepted: number
}

/** Long enough for the server to apply what reached it. */
const CUT_AFTER_MS = 30

/** Timers are not more exact than this at the rates of the tests. */
const PART_BYTES = 4096

/** A TCP proxy in front of a server, for answers that never come or come late. Each way takes `delayMs`. */
export async function startLossyProxy(target: string, { delayMs: firstDelayMs = 0 } = {}): Promise<LossyProxy> {
  let delayMs = firstDelayMs
  let isHung = false
  let accepted = 0
  const { protocol, hostname, port } = new URL(target)
  let bytesPerSecond = Number.POSITIVE_INFINITY
  let losing: 'requests' | 'answers' | undefined
  let cutting: NodeJS.Timeout | undefined
  const sockets = new Set<Socket>()
  const forward = (from: Socket, to: Socket, what: 'requests' | 'answers') => {
    sockets.add(from)
    let inOrder: Promise<void> | undefined
    from.on('data', (chunk) => {
      if (isHung) return
      if (losing === what) cutting ??= setTimeout(cut, CUT_AFTER_MS)
      else if (what === 'requests' && bytesPerSecond < Number.POSITIVE_INFINITY) inOrder = pass(chunk, to, inOrder)
      else if (delayMs === 0 && inOrder === undefined) to.write(chunk)
      else inOrder = Promise.all([inOrder, sleep(delayMs)]).then(() => void to.write(chunk))
    })
    from.on('error', () => from.destroy())
    from.on('close', () => {
      sockets.delete(from)
      to.destroy()
    })
  }
  const pass = async (chunk: Buffer, to: Socket, before: Promise<void> | undefined) => {
    await before
    for (let at = 0; at < chunk.length; at += PART_BYTES) {
      await sleep((1000 * Math.min(PART_BYTES, chunk.length - at)) / bytesPerSecond)
      to.write(chunk.subarray(at, at + PART_BYTES))
    }
  }
  const server = createServer((client) => {
    accepted++
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
    url: `${protocol}//127.0.0.1:${(server.address() as AddressInfo).port}`,
    lose(what) {
      losing = what
    },
    delay(ms) {
      delayMs = ms
    },
    narrow(limit) {
      bytesPerSecond = limit
    },
    hang(isHanging) {
      isHung = isHanging
      if (!isHung) cut()
    },
    get accepted() {
      return accepted
    },
    async [Symbol.asyncDispose]() {
      cut()
      server.close()
      await once(server, 'close')
    },
  }
}
