import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Nats } from '#lab'
import { connectJetStream } from '#nats'
import { reportConnection } from '../../cli/process/nats.ts'
import { startTestNats } from '../support/servers.ts'
import { until } from '../support/wait.ts'

let nats: Nats & AsyncDisposable
beforeAll(async () => {
  nats = await startTestNats()
})
afterAll(() => nats[Symbol.asyncDispose]())

async function reported() {
  const js = await connectJetStream({ servers: nats.url, name: 'test' })
  const lines: { msg: string; because?: string; afterSeconds?: number }[] = []
  const note = (fields: object, msg: string) => void lines.push({ ...fields, msg })
  reportConnection(js, { info: note, warn: note })
  return { js, lines, [Symbol.asyncDispose]: () => js.close() }
}

it.each([
  ['SIGKILL', 'the connection has dropped'],
  ['SIGSTOP', 'it does not answer'],
] as const)('a server that gets %s is reported once, and so is its return', async (signal, because) => {
  await using scene = await reported()
  const { lines } = scene
  nats.signal(signal)
  await until(async () => lines.length > 0, { what: 'it is reported' })
  expect(lines).toMatchObject([{ msg: 'NATS is gone: work goes on when it is back', because }])
  if (signal === 'SIGSTOP') nats.signal('SIGCONT')
  else await nats.restart()
  await until(async () => lines.length > 1, { what: 'its return is reported' })
  await scene.js.flush()
  expect(lines.slice(1)).toMatchObject([{ msg: 'NATS is back', afterSeconds: expect.any(Number) }])
})

it('a connection that is closed is not reported', async () => {
  await using scene = await reported()
  await scene.js.flush()
  await scene.js.close()
  expect(scene.lines).toEqual([])
})
