import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { type EventStore, keyOf } from '#events'
import { resourcePath } from '#kube'
import { finalizerOf, RECONCILERS } from '#spec'
import { CONFIG_MAPS, PODS, type Scene, silent, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()

/** EVENTS, of which followers get nothing that is stored after `silence()`: their server has died, unnoticed. */
function silenceable() {
  let speaking: PromiseWithResolvers<void> | undefined
  const heldBack: string[] = []
  const { events } = fixture
  const follow: EventStore['follow'] = async function* (filter, signal, caughtUp) {
    for await (const event of events.follow(filter, signal, caughtUp)) {
      if (speaking) {
        heldBack.push(event.resourceVersion)
        await Promise.race([speaking.promise, once(signal, 'abort')])
      }
      yield event
    }
  }
  return {
    events: { ...events, follow },
    silence: () => {
      speaking = Promise.withResolvers()
    },
    speak: () => speaking?.resolve(),
    /** Versions that have reached this process. */
    heldBack,
  }
}

/** Counts how often a Reconciler began to be served. */
function countingLog() {
  const said: string[] = []
  const info = (_: object, message: string) => said.push(message)
  return { log: { ...silent, info }, served: () => said.filter((message) => message === 'reconciler served').length }
}

async function edit(scene: Scene, version: number, spec: object): Promise<void> {
  const object = scene.reconciler(spec)
  object.metadata.resourceVersion = String(version)
  await fixture.events.put(RECONCILERS, 'modified', object)
}

async function stored(scene: Scene, metadata: Partial<KubeObject['metadata']> = {}): Promise<KubeObject> {
  const widget = {
    apiVersion: 'test.fairlead.dev/v1',
    kind: 'Widget',
    metadata: { name: 'w', namespace: scene.name, ...metadata },
    spec: {},
  }
  const created = await fixture.kube.create(resourcePath(WIDGETS, scene.name), widget)
  await fixture.events.put(WIDGETS, 'added', created)
  return created
}

const isIdle = async (scene: Scene) => Object.values(await scene.queue.depth(scene.name)).every((keys) => keys === 0)

/**
 * Expects that a key that is queued after the change stays in the queue, and that the function is not called. The feed
 * does not report the change.
 */
async function expectUnserved(name: string, change: (scene: Scene) => Promise<void>): Promise<void> {
  const { events, silence } = silenceable()
  const scene = await fixture.scene(name, { dispatcher: { events } })
  let calls = 0
  scene.behave('w', () => {
    calls++
    return {}
  })
  await stored(scene)
  silence()
  await change(scene)
  await scene.enqueue('w')
  await until(() => scene.dispatcher.serving().length === 0)
  await until(async () => (await scene.queue.depth(scene.name)).running === 0)
  expect(calls).toBe(0)
  expect(await scene.queue.find({ reconciler: scene.name, key: keyOf(scene.name, 'w') })).toMatchObject([
    { state: 'queued' },
  ])
  await scene.stop()
}

describe('a dispatcher whose feed of Reconcilers is silent', () => {
  it('loses no key that a wider selector queues', async () => {
    const { events, silence } = silenceable()
    const narrow = { ...WIDGETS, namespaces: ['wider'], selector: 'app=x' }
    await using scene = await fixture.scene('wider', { dispatcher: { events }, spec: { for: narrow } })
    let calls = 0
    scene.behave('w', () => {
      calls++
      return {}
    })
    await stored(scene, { labels: { app: 'y' } })
    silence()
    await edit(scene, 2, { for: { ...narrow, selector: 'app in (x, y)' } })
    await scene.enqueue('w')
    const results = () => scene.stepsOf('w').flatMap((step) => (step.step === 'finished' ? [step.result] : []))
    await until(async () => results().includes('success') && (await isIdle(scene)))
    expect(calls).toBe(1)
    expect(results(), 'handed back once').toEqual(['fenced', 'success'])
  })

  it('lets no object go before the clean-up that a new `finalize` asks for', async () => {
    const { events, silence } = silenceable()
    await using scene = await fixture.scene('cleans', { dispatcher: { events } })
    const finalizing: boolean[] = []
    scene.behave('w', (input) => {
      finalizing.push(input.finalizing)
      return {}
    })
    silence()
    await edit(scene, 2, { finalize: true })
    await stored(scene, { finalizers: [finalizerOf(scene.name)] })
    await fixture.kube.delete(resourcePath(WIDGETS, scene.name, 'w'))
    await scene.see(WIDGETS, 'w')
    await scene.enqueue('w')
    await until(async () => (await scene.get(WIDGETS, 'w')) === undefined)
    expect(finalizing).toEqual([true])
  })

  it.each([
    ['primary', { for: { ...CONFIG_MAPS, namespaces: ['new-primary'] } }, 0],
    ['owns', { owns: [PODS] }, 1],
    ['related', { related: [{ ...CONFIG_MAPS, strategy: undefined }] }, 1],
    ['revision', { revision: 'b' }, 1],
    ['account', { serviceAccount: { name: 'default', namespace: 'new-account' } }, 1],
    ['dryrun', { dryRun: true }, 1],
  ])('calls the function by the new specification only: %s', async (what, spec, calls) => {
    const { events, silence } = silenceable()
    const { log, served } = countingLog()
    await using scene = await fixture.scene(`new-${what}`, { dispatcher: { events, log } })
    const calledAt: number[] = []
    scene.behave('w', () => {
      calledAt.push(served())
      return {}
    })
    await stored(scene)
    silence()
    await edit(scene, 2, spec)
    await scene.enqueue('w')
    await until(async () => served() === 2 && (await isIdle(scene)))
    expect(calledAt).toEqual(Array.from({ length: calls }, () => 2))
  })

  it.each([
    ['paused', (scene: Scene) => edit(scene, 2, { paused: true })],
    ['refused', (scene: Scene) => edit(scene, 2, { invoke: { http: { url: 'nowhere' } } })],
    ['deleted', (scene: Scene) => fixture.events.put(RECONCILERS, 'deleted', scene.reconciler()).then(() => undefined)],
  ])('leaves the keys of a Reconciler in the queue that is %s', async (what, change) => {
    await expectUnserved(`is-${what}`, change)
  })

  it('is not taken back by what the feed brings in the end', async () => {
    const { events, silence, speak, heldBack } = silenceable()
    const { log, served } = countingLog()
    await using scene = await fixture.scene('in-the-end', { dispatcher: { events, log } })
    await stored(scene)
    silence()
    await edit(scene, 2, { concurrency: 2 })
    await until(() => heldBack.includes('2'))
    await edit(scene, 3, { concurrency: 3 })
    await scene.enqueue('w')
    await until(async () => served() === 2 && (await isIdle(scene)))
    speak()
    await until(() => heldBack.includes('3'))
    await scene.run('w')
    expect(served()).toBe(2)
  })

  it('goes on with a Reconciler when only its status was changed', async () => {
    const { events, silence } = silenceable()
    const { log, served } = countingLog()
    await using scene = await fixture.scene('same-spec', { dispatcher: { events, log } })
    await stored(scene)
    silence()
    await edit(scene, 2, {})
    expect((await scene.run('w')).result).toBe('success')
    expect((await scene.run('w')).result).toBe('success')
    expect(served()).toBe(1)
  })
})

describe('a Reconciler that EVENTS does not have', () => {
  const forget = (scene: Scene) =>
    fixture.js.admin.streams.purge(fixture.events.stream, { filter: `*.*.*.*.reconcilers.*.*.${scene.name}` })

  it('was deleted, where the dispatcher was cut off until its tombstone was gone: nothing runs for it', async () => {
    await expectUnserved('gone', async (scene) => {
      await fixture.events.put(RECONCILERS, 'deleted', scene.reconciler())
      await forget(scene)
    })
  })

  it('was lost, where the API server has it: it says so there, is stored again for that, and served', async () => {
    const { log, served } = countingLog()
    const object = await fixture.reconciler('lost', { owns: [PODS, CONFIG_MAPS] })
    await using scene = await fixture.scene('lost', { dispatcher: { log }, object })
    const current = () => fixture.kube.get<KubeObject>(resourcePath(RECONCILERS, undefined, 'lost'))
    const reasonOf = ({ status }: KubeObject) =>
      (status as { conditions?: { reason: string }[] } | undefined)?.conditions?.[0]?.reason
    await until(async () => reasonOf(await current()) === 'Serving')
    await fixture.events.put(RECONCILERS, 'modified', await current())
    await stored(scene)
    await forget(scene)
    await scene.enqueue('w')
    await until(async () => reasonOf(await current()) === 'NotInEvents')
    await fixture.events.put(RECONCILERS, 'modified', await current())
    await until(() => served() === 2)
    expect((await scene.run('w')).result).toBe('success')
    await until(async () => reasonOf(await current()) === 'Serving')
  })
})

it('an API server that is slow to store how a Reconciler is served delays no change of it, and gets the latest', async () => {
  const release = Promise.withResolvers<void>()
  const asked: unknown[] = []
  let answered = 0
  let isSlow = false
  const kube = Object.assign(Object.create(fixture.kube) as typeof fixture.kube, {
    async patch(...[path, patch, ...rest]: Parameters<typeof fixture.kube.patch>) {
      if (path.includes('/reconcilers/slow-status/')) {
        asked.push((patch as KubeObject).metadata.resourceVersion)
        if (isSlow) await release.promise
        return fixture.kube.patch(path, patch, ...rest).finally(() => answered++)
      }
      return fixture.kube.patch(path, patch, ...rest)
    },
  })
  const { log, served } = countingLog()
  await using scene = await fixture.scene('slow-status', { dispatcher: { kube, log } })
  await until(() => answered > 0)
  isSlow = true
  for (const version of [2, 3, 4]) {
    await edit(scene, version, { concurrency: version })
    await until(() => served() === version && asked.includes('2'))
  }
  expect(new Set(asked)).toEqual(new Set(['1', '2']))
  release.resolve()
  await until(() => asked.includes('4'))
  expect([...new Set(asked)]).toEqual(['1', '2', '4'])
})

it('a function that is moved back from http to pull is not called at its address any more where it is not built in', async () => {
  let calls = 0
  const server = createServer((request, response) => {
    calls++
    request.resume()
    response.writeHead(204, { 'fairlead-function': 'to-pull' }).end()
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const scene = await fixture.scene('to-pull', {
    dispatcher: { functions: new Map() },
    spec: { invoke: { http: { url } } },
  })
  await stored(scene)
  await scene.run('w')
  expect(calls).toBe(1)
  await edit(scene, 2, { invoke: { pull: {} } })
  await until(() => scene.dispatcher.serving().length === 0)
  await scene.enqueue('w')
  expect(await scene.queue.depth(scene.name)).toMatchObject({ queued: 1, running: 0 })
  expect(calls).toBe(1)
  await scene.stop()
  server.close()
})
