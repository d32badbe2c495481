import { afterAll, beforeAll } from 'vitest'
import type { Nats } from '#lab'
import { connectJetStream, type JetStream } from '#nats'
import { startTestNats } from './servers.ts'

/** A nats-server for the tests of a file or of a block, and a connection to it. */
export function useJetStream(): { nats: () => Nats; js: () => JetStream } {
  let nats: Nats & AsyncDisposable
  let js: JetStream
  beforeAll(async () => {
    nats = await startTestNats()
    js = await connectJetStream({ servers: nats.url, name: 'test' })
  })
  afterAll(async () => {
    await js?.close()
    await nats?.[Symbol.asyncDispose]()
  })
  return { nats: () => nats, js: () => js }
}
