import { setTimeout as sleep } from 'node:timers/promises'
import type { Msg } from 'nats'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { connectJetStream, type JetStream } from '#nats'
import { Outbox, RequestMux } from '../../streams/nats/mux.ts'
import { startTestNats } from '../support/servers.ts'

const TIMEOUT_MS = 1000

let nats: Awaited<ReturnType<typeof startTestNats>>
let js: JetStream
beforeAll(async () => {
  nats = await startTestNats()
  js = await connectJetStream({ servers: nats.url, name: 'test' })
})
afterAll(async () => {
  await js.close()
  await nats[Symbol.asyncDispose]()
})

/** Answers each request so many times, with pauses; the last answer is empty. */
function answering(subject: string, answers: number, pauseMs: number): void {
  js.nc.subscribe(subject, {
    callback: (_, request) => void answer(request, answers, pauseMs),
  })
}

async function answer(request: Msg, answers: number, pauseMs: number): Promise<void> {
  for (let count = 0; count < answers; count++) {
    await sleep(pauseMs)
    request.respond(`answer ${count}`)
  }
  request.respond()
}

const mux = () => new RequestMux(js.nc, new Outbox(js.nc), js.newInbox())

it('waits for many answers as long as each of them comes in time', async () => {
  answering('slow', 6, TIMEOUT_MS / 4)
  const answers = await mux().requestMany('slow', '', ({ data }) => data.length === 0, TIMEOUT_MS)
  expect(answers).toHaveLength(7)
})

it('gives up many answers when the next one does not come in time', async () => {
  answering('stuck', 2, TIMEOUT_MS * 2)
  const asked = mux().requestMany('stuck', '', ({ data }) => data.length === 0, TIMEOUT_MS)
  await expect(asked).rejects.toThrow('no answer on stuck in time')
})
