import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { openEventStore } from '#events'
import type { JetStream } from '#nats'
import { finalizerOf } from '#spec'
import { Relations } from '../../bridge/relations.ts'
import { type ResyncDeps, Resyncs } from '../../bridge/resyncs.ts'
import { Routes } from '../../bridge/routing.ts'
import { connectTo } from '../support/jetstream.ts'
import { startTestNats } from '../support/servers.ts'
import { configMaps, reconciler, secrets } from './objects.ts'
import { map } from './scripted-api.ts'
import { silent, until } from './world.ts'

const RESYNCS = { group: 'fairlead.dev', version: 'v1alpha1', resource: 'resyncs' }
const BEGIN = Date.parse('2030-01-01T00:00:00Z')

let nats: Awaited<ReturnType<typeof startTestNats>>
let js: JetStream

beforeAll(async () => {
  nats = await startTestNats()
  js = await connectTo(nats.url, 'resyncs')
})

afterAll(async () => {
  await js?.close()
  await nats?.stop()
})

type Maps = string[] | KubeObject[]

/** Reconcilers of these objects, whose last resync was at BEGIN; gives what starts a bridge's resyncs, as of that second. */
async function resynced(names: string[], objects: Maps, specOf: (name: string) => object = () => ({})) {
  const events = await openEventStore(js, { prefix: names.join('-'), cluster: 'test', log: silent })
  for (const one of objects) await events.put(configMaps, 'added', typeof one === 'string' ? map(one, 1) : one)
  const found = names.map((name) => reconciler(name, { for: configMaps, resyncSeconds: 100, ...specOf(name) }))
  const at = new Date(BEGIN).toISOString()
  for (const { name, coverageId } of found)
    await events.setCursor(RESYNCS, name, { resourceVersion: '0', at, covers: [coverageId] })
  const reconcilers = () => found
  const begin = (seconds: () => number, enqueue: ResyncDeps['enqueue'], random = () => 0.5) => {
    const stop = new AbortController()
    const now = () => new Date(BEGIN + seconds() * 1000)
    const routes = () => new Routes(found)
    const running = new Resyncs({ events, log: silent, now, random, reconcilers, routes, enqueue }).run(stop.signal)
    return { stop: () => stop.abort(), running }
  }
  const lastAt = async () => (Date.parse((await events.cursor(RESYNCS, names[0]))?.at ?? '') - BEGIN) / 1000
  return { begin, lastAt, events, found }
}

/** Beside these, a Reconciler selects everything, so that EVENTS has all of them. */
const SPECS: Record<string, object> = {
  all: { for: configMaps },
  'by-namespace': { for: { ...configMaps, namespaces: ['a', 'b'] } },
  'by-labels': { for: { ...configMaps, selector: 'app=mine' } },
  'by-fields': { for: { ...configMaps, fieldSelector: 'metadata.name=mine' } },
  'by-both': { for: { ...configMaps, namespaces: ['b'], selector: 'app=mine' } },
  'with-finalizer': { for: { ...configMaps, namespaces: ['a', 'b'], selector: 'app=mine' }, finalize: true },
}
const KEYS = {
  all: ['a.mine', 'a.other', 'b.mine', 'b.held', 'c.mine', 'c.other', 'c.held'],
  'by-namespace': ['a.mine', 'a.other', 'b.mine', 'b.held'],
  'by-labels': ['a.mine', 'b.mine', 'c.mine'],
  'by-fields': ['a.mine', 'b.mine', 'c.mine'],
  'by-both': ['b.mine'],
  'with-finalizer': ['a.mine', 'b.mine', 'b.held'],
}
const inNamespace = (namespace: string, name: string, more: Partial<KubeObject['metadata']> = {}) =>
  map(name, 1, { namespace, labels: { app: name }, ...more })
const OBJECTS = [
  ...['a', 'b', 'c'].map((namespace) => inNamespace(namespace, 'mine')),
  ...['a', 'c'].map((namespace) => inNamespace(namespace, 'other')),
  ...['b', 'c'].map((namespace) => inNamespace(namespace, 'held', { finalizers: [finalizerOf('with-finalizer')] })),
]

const sortedKeys = (by: ReadonlyMap<string, string[]>) =>
  Object.fromEntries([...by].map(([name, keys]) => [name, keys.toSorted()]))
const EXPECTED = sortedKeys(new Map(Object.entries(KEYS)))

/** Keys by Reconciler. */
function collecting() {
  const keys = new Map<string, string[]>()
  const enqueue = async (name: string, key: string) => void keys.set(name, [...(keys.get(name) ?? []), key])
  return { keys, enqueue }
}

it('a resync enqueues only what its Reconciler selects: namespaces, labels, fields, and what has left with its finalizer', async () => {
  const names = Object.keys(SPECS)
  const { begin, events } = await resynced(names, OBJECTS, (name) => SPECS[name]!)
  const { keys, enqueue } = collecting()
  const { stop, running } = begin(() => 120, enqueue)
  const isOver = async (name: string) => Date.parse((await events.cursor(RESYNCS, name))?.at ?? '') > BEGIN
  await until(async () => (await Promise.all(names.map(isOver))).every(Boolean), { what: 'all are over' })
  stop()
  await running
  expect(sortedKeys(keys)).toEqual(EXPECTED)
})

it.each(['all', 'by a field'])(
  'a change of a related object that concerns %s primaries enqueues only what the Reconciler selects',
  async (which) => {
    const names = Object.keys(SPECS)
    const related = which === 'all' ? { within: 'Cluster' } : { namespacePath: 'metadata.annotations.near' }
    const near = { annotations: { near: 'x' } }
    const { events, found } = await resynced(
      names.map((name) => `${which.replaceAll(' ', '-')}-${name}`),
      OBJECTS.map((one) => ({ ...one, metadata: { ...one.metadata, ...near } })),
      (name) => {
        const of = names.find((one) => name.endsWith(one))!
        return { ...SPECS[of], identity: of, related: [{ ...secrets, ...related }] }
      },
    )
    const { keys, enqueue } = collecting()
    const end = new AbortController()
    const relations = new Relations(
      { events, log: silent, signal: end.signal, isClusterScoped: async () => false },
      enqueue,
    )
    relations.reroute(new Routes(found))
    const change = { namespace: 'x', name: 's', object: undefined, owners: [] }
    await relations.enqueue(secrets, change, { lane: 'low', cause: 'modified' }, () => true)
    end.abort()
    const byName = new Map([...keys].map(([name, all]) => [names.find((one) => name.endsWith(one))!, all]))
    expect(sortedKeys(byName)).toEqual(EXPECTED)
  },
)

it('a resync does not wait for the one of another Reconciler', async () => {
  const { begin } = await resynced(['slow', 'quick'], ['a'])
  const enqueued: string[] = []
  const { stop, running } = begin(
    () => 120,
    (name) => (name === 'slow' ? new Promise(() => {}) : Promise.resolve(void enqueued.push(name))),
  )
  await until(async () => enqueued.length > 0, { what: 'the other is made' })
  stop()
  await running
})

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
