import { afterAll, beforeAll, expect, it } from 'vitest'
import { openEventStore } from '#events'
import { connectJetStream, type JetStream } from '#jetstream'
import { type ResyncDeps, Resyncs } from '../../bridge/resyncs.ts'
import { startTestNats } from '../support/servers.ts'
import { configMaps, reconciler } from './objects.ts'
import { map } from './scripted-api.ts'
import { silent, until } from './world.ts'

const RESYNCS = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'resyncs' }
const BEGIN = Date.parse('2030-01-01T00:00:00Z')

let nats: Awaited<ReturnType<typeof startTestNats>>
let js: JetStream

beforeAll(async () => {
  nats = await startTestNats()
  js = await connectJetStream({ servers: nats.url, name: 'resyncs' })
})

afterAll(async () => {
  await js?.close()
  await nats?.stop()
})

/** Reconcilers of these objects, whose last resync was at BEGIN; gives what starts a bridge's resyncs, as of that second. */
async function resynced(names: string[], objects: string[]) {
  const events = await openEventStore(js, { prefix: names.join('-'), cluster: 'test', log: silent })
  for (const name of objects) await events.put(configMaps, 'added', map(name, 1))
  const found = names.map((name) => reconciler(name, { for: configMaps, resyncSeconds: 100 }))
  const at = new Date(BEGIN).toISOString()
  for (const { name, coverageId } of found)
    await events.setCursor(RESYNCS, name, { resourceVersion: '0', at, covers: [coverageId] })
  const reconcilers = () => found
  const begin = (seconds: () => number, enqueue: ResyncDeps['enqueue'], random = () => 0.5) => {
    const stop = new AbortController()
    const now = () => new Date(BEGIN + seconds() * 1000)
    const running = new Resyncs({ events, log: silent, now, random, reconcilers, enqueue }).run(stop.signal)
    return { stop: () => stop.abort(), running }
  }
  const lastAt = async () => (Date.parse((await events.cursor(RESYNCS, names[0]))?.at ?? '') - BEGIN) / 1000
  return { begin, lastAt }
}

it('resyncs come a tenth earlier or later than agreed, by chance', async () => {
  const { begin } = await resynced(['late', 'early'], ['a'])
  const enqueued: string[] = []
  const chances = [0.999, 0]
  let seconds = 95
  const { stop, running } = begin(
    () => seconds,
    async (reconciler, key, lane) => void enqueued.push(`${reconciler} ${key} ${lane}`),
    () => chances.shift() ?? 0.5,
  )
  await until(async () => enqueued.length > 0, { what: 'one is early' })
  expect(enqueued).toEqual(['early default.a low'])
  seconds = 110
  await until(async () => enqueued.length > 1, { what: 'one is late' })
  stop()
  await running
  expect(enqueued).toEqual(['early default.a low', 'late default.a low'])
})

it('the resync that a bridge died in is made by the next one, and by no other after it', async () => {
  const { begin, lastAt } = await resynced(['kept'], ['a', 'b'])
  let isDying = false
  const dead = begin(
    () => 120,
    () => {
      isDying = true
      return new Promise(() => {})
    },
  )
  await until(async () => isDying, { what: 'it dies' })
  dead.stop()
  const enqueued: string[] = []
  const enqueue: ResyncDeps['enqueue'] = async (_, key) => void enqueued.push(key)
  const next = begin(() => 130, enqueue)
  await until(async () => (await lastAt()) === 130, { what: 'its time is kept' })
  const other = begin(() => 200, enqueue)
  for (const { stop, running } of [next, other]) {
    stop()
    await running
  }
  expect(enqueued.toSorted()).toEqual(['default.a', 'default.b'])
})

it('a resync that fails is tried again after a minute', async () => {
  const { begin, lastAt } = await resynced(['failed'], ['a'])
  let seconds = 120
  let tries = 0
  const { stop, running } = begin(
    () => seconds,
    async () => {
      if (++tries === 1) throw new Error('no')
    },
  )
  await until(async () => tries === 1, { what: 'it has failed' })
  seconds = 181
  await until(async () => (await lastAt()) === 181, { what: 'its time is kept' })
  stop()
  await running
  expect(tries).toBe(2)
})
