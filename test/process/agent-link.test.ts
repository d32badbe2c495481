import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeClient } from '#kube'
import type { Nats } from '#lab'
import type { JetStream } from '#nats'
import { openAgentKube } from '#process/agent-link'
import { agentSubjects, unpacked } from '#process/agent-wire'
import { readConfig } from '#process/config'
import { connectTo } from '../support/jetstream.ts'
import { startTestNats } from '../support/servers.ts'
import { until } from '../support/wait.ts'

const PATH = '/api/v1/namespaces/default/configmaps/a'
const SUBJECTS = agentSubjects('east')
const SESSION = {
  agent: '11111111-1111-4111-8111-111111111111',
  token: '22222222-2222-4222-8222-222222222222',
  clock: 1000,
}

let nats: Nats & AsyncDisposable
let js: JetStream
let kube: KubeClient
beforeAll(async () => {
  nats = await startTestNats()
  js = await connectTo(nats.url)
  const config = readConfig({ NATS_URL: nats.url, FAIRLEAD_PREFIX: 'east' })
  kube = await openAgentKube({ ...config, cluster: 'east', byAgent: true })
})
afterAll(async () => {
  await kube?.close()
  await js?.close()
  await nats?.[Symbol.asyncDispose]()
})

/** An agent that somebody has broken into. Returns the heads of what it receives. */
function rogueAgent(answer: (respond: (part: Uint8Array) => void) => void, session: object = SESSION) {
  const heads: { id?: string; cancel?: string }[] = []
  const subscriptions = [
    js.nc.subscribe(SUBJECTS.sessions, { callback: (_, message) => void message.respond(JSON.stringify(session)) }),
    js.nc.subscribe(SUBJECTS.requestsTo(SESSION.agent), {
      callback: (_, message) => {
        if (message.data.length === 0) return void message.respond(JSON.stringify(session))
        void unpacked(message.data).then(({ head }) => {
          heads.push(head as (typeof heads)[number])
          answer((part) => void message.respond(part))
        })
      },
    }),
  ]
  return Object.assign(heads, {
    [Symbol.dispose]: () => {
      for (const one of subscriptions) one.unsubscribe()
    },
  })
}

const whole = (text: string) => Buffer.concat([Buffer.of(1), Buffer.from(text)])

it('a request that nobody waits for any more is cancelled', async () => {
  using heads = rogueAgent(() => undefined)
  await js.flush()
  const run = new AbortController()
  const reading = kube.get(PATH, { signal: run.signal })
  reading.catch(() => undefined)
  await until(() => heads.length === 1)
  run.abort(new Error('the lease is over'))
  await expect(reading).rejects.toThrow('the lease is over')
  await until(() => heads.length === 2)
  expect(heads[1]?.cancel).toBe(heads[0]?.id)
})

it('an answer without an end is given up at its limit, before the time-out', async () => {
  const part = Buffer.alloc(2 ** 20)
  using _heads = rogueAgent((respond) => {
    for (let count = 0; count < 40; count++) respond(part)
  })
  await js.flush()
  await expect(kube.get(PATH, { timeoutMs: 60_000 })).rejects.toMatchObject({
    name: 'ApiConnectionError',
    wasSent: true,
    message: expect.stringContaining('no answer but something else'),
  })
})

it.each(['', 'text', '{}\n', '{"code":"200"}\n', '{"code":99}\n', '{"code":200,"retryAfter":"1"}\n', 'null\n'])(
  'an answer that is none is a broken connection: %j',
  async (text) => {
    using _heads = rogueAgent((respond) => respond(whole(text)))
    await js.flush()
    await expect(kube.get(PATH)).rejects.toMatchObject({ name: 'ApiConnectionError', wasSent: true })
  },
)
