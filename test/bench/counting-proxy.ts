import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { kindOf } from './message-kinds.ts'

interface Counted {
  sent: number
  received: number
}

export interface CountingProxy {
  url: string
  /** Messages that clients have sent so far: publishes, requests and acknowledgements. */
  messages(): number
  /** Messages that they have received so far, and the bytes of these. */
  received(): { messages: number; bytes: number }
  /** Both by what they are; an answer counts as what it answers. */
  kinds(): Map<string, Counted>
}

/** Starts a proxy in front of a nats-server without TLS. */
export async function countMessagesTo(url: string): Promise<CountingProxy> {
  const { hostname, port, username } = new URL(url)
  let messages = 0
  let received = { messages: 0, bytes: 0 }
  const kinds = new Map<string, Counted>()
  const count = (kind: string, what: keyof Counted) => {
    const counted = kinds.get(kind) ?? { sent: 0, received: 0 }
    kinds.set(kind, { ...counted, [what]: counted[what] + 1 })
  }
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname)
    /** What has been asked, by where its answer goes. */
    const asked = new Map<string, string>()
    client.on(
      'data',
      messageCounter(/^H?PUB$/i, ([operation, subject = '', ...rest]) => {
        messages++
        const kind = kindOf(subject)
        count(kind, 'sent')
        const [reply] = rest.slice(0, /^H/i.test(operation ?? '') ? -2 : -1)
        if (reply !== undefined) asked.set(reply, kind)
      }),
    )
    upstream.on(
      'data',
      messageCounter(/^H?MSG$/i, ([, subject = ''], bytes) => {
        received = { messages: received.messages + 1, bytes: received.bytes + bytes }
        count(asked.get(subject) ?? `${kindOf(subject)}, delivered`, 'received')
      }),
    )
    client.pipe(upstream).pipe(client)
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const)
      one.on('error', () => other.destroy()).on('close', () => other.destroy())
  })
  server.listen(0, '127.0.0.1').unref()
  await once(server, 'listening')
  const user = username === '' ? '' : `${username}@`
  const { port: own } = server.address() as AddressInfo
  return {
    url: `nats://${user}127.0.0.1:${own}`,
    messages: () => messages,
    received: () => received,
    kinds: () => new Map(kinds),
  }
}

/** Parses the lines of the NATS protocol, and skips the payloads that they announce. */
function messageCounter(operation: RegExp, counted: (words: string[], bytes: number) => void): (chunk: Buffer) => void {
  let line = ''
  let payload = 0
  return (chunk) => {
    for (let at = 0; at < chunk.length; ) {
      if (payload > 0) {
        const skipped = Math.min(payload, chunk.length - at)
        payload -= skipped
        at += skipped
        continue
      }
      const end = chunk.indexOf('\n', at)
      line += chunk.toString('latin1', at, end === -1 ? chunk.length : end)
      if (end === -1) return
      at = end + 1
      const words = line.trim().split(/\s+/)
      if (operation.test(words[0] ?? '')) {
        payload = Number(words.at(-1)) + 2
        counted(words, payload)
      }
      line = ''
    }
  }
}
