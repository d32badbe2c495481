import { afterAll, beforeAll } from 'vitest'
import type { Nats } from '#lab'
import { connectJetStream, type JetStream } from '#nats'
import { startTestNats } from './servers.ts'

/** As long as a busy machine may pause. A request that is lost with its connection fails at once. */
const ANSWER_WITHIN_MS = 10_000

export const connectTo = (servers: string, name = 'test'): Promise<JetStream> =>
  connectJetStream({ servers, name, timeoutMs: ANSWER_WITHIN_MS, options: { timeout: ANSWER_WITHIN_MS } })

/** A nats-server for the tests of a file or of a block, and a connection to it. */
export function useJetStream(): { nats: () => Nats; js: () => JetStream } {
  let nats: Nats & AsyncDisposable
  let js: JetStream
  beforeAll(async () => {
    nats = await startTestNats()
    js = await connectTo(nats.url)
  })
  afterAll(async () => {
    await js?.close()
    await nats?.[Symbol.asyncDispose]()
  })
  return { nats: () => nats, js: () => js }
}

/** Every message of every stream there is, as it is kept. */
export async function storedIn(js: JetStream): Promise<string[]> {
  const messages: string[] = []
  for await (const { config } of js.admin.streams.list())
    for await (const { headers, data } of js.scan(config.name, '>'))
      messages.push(JSON.stringify(headers) + Buffer.from(data).toString('latin1'))
  return messages
}
