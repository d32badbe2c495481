import { expect, it } from 'vitest'
import { openEventStore } from '#events'
import { connectJetStream } from '#jetstream'
import { Resyncs } from '../../bridge/resyncs.ts'
import { startTestNats } from '../support/servers.ts'
import { configMaps, reconciler } from './objects.ts'
import { map } from './scripted-api.ts'
import { silent, until } from './world.ts'

const RESYNCS = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'resyncs' }

it('resyncs come a tenth earlier or later than agreed, by chance', async () => {
  await using nats = await startTestNats()
  await using js = await connectJetStream({ servers: nats.url, name: 'resyncs' })
  const events = await openEventStore(js, { prefix: 'r', cluster: 'test', log: silent })
  await events.put(configMaps, 'added', map('a', 1))
  const [late, early] = ['late', 'early'].map((name) => reconciler(name, { for: configMaps, resyncSeconds: 100 }))
  const begin = Date.parse('2030-01-01T00:00:00Z')
  for (const { name, token } of [late!, early!])
    await events.setCursor(RESYNCS, name, {
      resourceVersion: '0',
      at: new Date(begin).toISOString(),
      covers: [token],
    })
  const stop = new AbortController()
  const enqueued: string[] = []
  const chances = [0.999, 0]
  let seconds = 95
  const running = new Resyncs({
    events,
    log: silent,
    now: () => new Date(begin + seconds * 1000),
    random: () => chances.shift() ?? 0.5,
    reconcilers: () => [late!, early!],
    enqueue: async (fn, key, lane) => void enqueued.push(`${fn} ${key} ${lane}`),
  }).run(stop.signal)
  await until('one is early', async () => enqueued.length > 0)
  expect(enqueued).toEqual(['early default.a low'])
  seconds = 110
  await until('one is late', async () => enqueued.length > 1)
  stop.abort()
  await running
  expect(enqueued).toEqual(['early default.a low', 'late default.a low'])
})
