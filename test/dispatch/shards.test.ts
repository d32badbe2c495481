import { afterEach, expect, it } from 'vitest'
import { createBridge, createOrphanedKeySweeper } from '#bridge'
import type { Invoke, KubeObject } from '#contracts'
import { createDispatcher } from '#dispatch'
import { keyOf, openEventStore } from '#events'
import { resourcePath } from '#kube'
import { openQueue } from '#queue'
import { RECONCILERS, SHARD_LABEL } from '#spec'
import { CONFIG_MAPS, configMap, silent, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()

// The shards of the next test have the same names.
const created: string[] = []
afterEach(async () => {
  for (const name of created.splice(0)) await fixture.kube.delete(resourcePath(RECONCILERS, undefined, name))
})

interface Call {
  shard: string
  key: string
  value: unknown
}

/** The calls of all shards, and the greatest number of calls for one key at once. */
class Calls {
  readonly all: Call[] = []
  most = 0
  /** Each call waits for this before it ends. */
  gate: Promise<unknown> = Promise.resolve()
  readonly active = new Map<string, number>()

  of(shard: string): string[] {
    return [...new Set(this.all.filter((call) => call.shard === shard).map(({ key }) => key))].sort()
  }

  invoke(shard: string, reconciler: string): Invoke {
    return async ({ object }) => {
      const key = `${reconciler} ${object?.metadata.name}`
      this.all.push({ shard, key, value: object?.['spec'] })
      const active = (this.active.get(key) ?? 0) + 1
      this.active.set(key, active)
      this.most = Math.max(this.most, active)
      await this.gate
      this.active.set(key, active - 1)
      return { apply: [configMap(`${reconciler}-${object?.metadata.name}`)], requeueAfterSeconds: 3600 }
    }
  }
}

async function startShard(scene: string, shard: string, names: readonly string[], calls: Calls) {
  const { kube, js } = fixture
  const prefix = `${scene}-${shard}`
  const events = await openEventStore(js, { prefix, cluster: 'test', log: silent })
  const queue = await openQueue(js, { prefix, log: silent })
  const shared = { kube, events, queue, shard, log: silent }
  const functions = new Map(names.map((name) => [name, calls.invoke(shard, name)]))
  const dispatcher = createDispatcher({ ...shared, functions, instance: shard })
  const stop = new AbortController()
  const dispatching = dispatcher.run(stop.signal, 1000)
  const startBridge = () => {
    const ended = new AbortController()
    const running = createBridge({ ...shared, ownWrites: dispatcher }).run(
      AbortSignal.any([ended.signal, stop.signal]),
      1000,
    )
    return async () => {
      ended.abort()
      await running
    }
  }
  const bridge = { stop: startBridge() }
  return {
    events,
    queue,
    dispatcher,
    stopBridge: () => bridge.stop(),
    startBridge() {
      bridge.stop = startBridge()
    },
    async [Symbol.asyncDispose]() {
      stop.abort()
      await Promise.all([bridge.stop(), dispatching])
    },
  }
}

async function namespace(name: string): Promise<void> {
  await fixture.kube.create('/api/v1/namespaces', { metadata: { name } })
}

function createReconciler(name: string, shard: string, scene: string): Promise<KubeObject> {
  created.push(name)
  const spec = { for: { ...WIDGETS, namespaces: [scene] }, owns: [CONFIG_MAPS] }
  return fixture.reconciler(name, spec, { [SHARD_LABEL]: shard })
}

const createWidget = (name: string, scene: string): Promise<KubeObject> =>
  fixture.kube.create(resourcePath(WIDGETS, scene), {
    apiVersion: 'test.fairlead.dev/v1',
    kind: 'Widget',
    metadata: { name, namespace: scene },
    spec: { size: 1 },
  })

const move = (name: string, shard: string): Promise<unknown> =>
  fixture.kube.patch(
    resourcePath(RECONCILERS, undefined, name),
    { metadata: { labels: { [SHARD_LABEL]: shard } } },
    'merge',
  )

interface Status {
  shard?: string
  conditions?: { type: string; status: string; reason: string; message: string }[]
}

/** `shard Synced/reason Ready/reason` */
async function stateOf(name: string): Promise<string> {
  const { status } = await fixture.kube.get(resourcePath(RECONCILERS, undefined, name))
  const { shard = '-', conditions = [] } = (status ?? {}) as Status
  const reasonOf = (type: string) => conditions.find((one) => one.type === type)?.reason ?? '-'
  return `${shard} ${reasonOf('Synced')} ${reasonOf('Ready')}`
}

const untilState = (name: string, wanted: string) =>
  until(async () => expect(await stateOf(name)).toBe(wanted), { what: `${name} is ${wanted}` })

it('each shard serves the Reconcilers with its label, on streams of its own, and no other', async () => {
  const scene = 'side-by-side'
  const calls = new Calls()
  const names = ['side-a', 'side-b', 'side-c']
  await namespace(scene)
  await createWidget('w', scene)
  await using a = await startShard(scene, 'a', names, calls)
  await using b = await startShard(scene, 'b', names, calls)
  for (const shard of ['a', 'b', 'c']) await createReconciler(`side-${shard}`, shard, scene)
  for (const shard of ['a', 'b']) await untilState(`side-${shard}`, `${shard} Watching Serving`)
  await until(() => expect([calls.of('a'), calls.of('b')]).toEqual([['side-a w'], ['side-b w']]))
  expect(await stateOf('side-c')).toBe('- - -')
  expect([await a.queue.reconcilers(), await b.queue.reconcilers()]).toEqual([['side-a'], ['side-b']])
  // The overlap with Reconcilers of other shards is reported until they are gone.
  const overlapping = async () => {
    const { status } = await fixture.kube.get(resourcePath(RECONCILERS, undefined, 'side-a'))
    return ((status as Status).conditions ?? []).find(({ type }) => type === 'Overlapping')
  }
  await until(async () => expect((await overlapping())?.message).toContain('side-b'))
  for (const other of created.splice(1)) await fixture.kube.delete(resourcePath(RECONCILERS, undefined, other))
  await until(async () => expect(await overlapping()).toBeUndefined())
})

it('a Reconciler that moves runs in its new shard when the last run of the former one has ended', async () => {
  const scene = 'moves'
  const name = 'moving'
  const calls = new Calls()
  await namespace(scene)
  for (const widget of ['v', 'w']) await createWidget(widget, scene)
  await using a = await startShard(scene, 'a', [name], calls)
  await using b = await startShard(scene, 'b', [name], calls)
  await createReconciler(name, 'a', scene)
  await until(() => calls.of('a').length === 2)
  await untilState(name, 'a Watching Serving')
  const timerOf = (queue: typeof a.queue) => queue.find({ reconciler: name, key: keyOf(scene, 'w') })
  await until(async () => expect(await timerOf(a.queue)).toMatchObject([{ state: 'waiting' }]))

  const gate = Promise.withResolvers<void>()
  calls.gate = gate.promise
  await a.queue.enqueue(name, keyOf(scene, 'w'))
  await until(() => calls.active.get(`${name} w`) === 1)
  await move(name, 'b')
  await untilState(name, 'a HeldByShard Serving')
  await fixture.kube.patch(resourcePath(WIDGETS, scene, 'v'), { spec: { size: 2 } }, 'merge')
  expect(calls.of('b')).toEqual([])
  gate.resolve()
  await untilState(name, 'b Watching Serving')
  await until(() => calls.of('b').length === 2)
  expect(calls.most).toBe(1)
  expect(a.dispatcher.serving()).toEqual([])
  // The change during the move is seen, and the timers are set again.
  await until(() => calls.all.some(({ shard, value }) => shard === 'b' && (value as { size: number }).size === 2))
  await until(async () => expect(await timerOf(b.queue)).toMatchObject([{ state: 'waiting' }]))

  const letters: unknown[] = []
  const stop = new AbortController()
  const sweeping = createOrphanedKeySweeper({
    kube: fixture.kube,
    queue: a.queue,
    shard: 'a',
    deadLetter: async (letter) => void letters.push(letter),
    log: silent,
    absentMs: 0,
    everyMs: 50,
  }).run(stop.signal, 0)
  await until(async () => expect(await a.queue.reconcilers()).toEqual([]), { what: 'the former queue is gone' })
  stop.abort()
  await sweeping
  expect([await Array.fromAsync(a.queue.list()), letters]).toEqual([[], []])
})

it('a Reconciler waits for its former shard while no bridge of that shard runs', async () => {
  const scene = 'unbridged'
  const name = 'waiting'
  const calls = new Calls()
  await namespace(scene)
  await createWidget('w', scene)
  await using a = await startShard(scene, 'a', [name], calls)
  await using b = await startShard(scene, 'b', [name], calls)
  await createReconciler(name, 'a', scene)
  await untilState(name, 'a Watching Serving')
  await a.stopBridge()
  await move(name, 'b')
  await untilState(name, 'a HeldByShard Serving')
  expect([a.dispatcher.serving(), b.dispatcher.serving(), calls.of('b')]).toEqual([[name], [], []])
  a.startBridge()
  await untilState(name, 'b Watching Serving')
  expect(a.dispatcher.serving()).toEqual([])

  await move(name, 'nowhere')
  await untilState(name, '- Released NotServed')
  const { status } = await fixture.kube.get(resourcePath(RECONCILERS, undefined, name))
  const messages = ((status as Status).conditions ?? []).map(({ message }) => message)
  expect(messages).toEqual(messages.map(() => 'shard b has released it, and shard nowhere has not taken it up yet'))

  // It comes back to a shard whose EVENTS and queue still know it.
  await move(name, 'a')
  await untilState(name, 'a Watching Serving')
  expect([a.dispatcher.serving(), b.dispatcher.serving(), calls.most]).toEqual([[name], [], 1])
})
