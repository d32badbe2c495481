import { describe, expect, it } from 'vitest'
import { type BridgeDeps, createBridge, type SeenChange } from '#bridge'
import type { KubeObject, Outcome, ResourceRef, RunInput } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { replacedMethods } from '../support/replaced-methods.ts'
import { CONFIG_MAPS, configMap, PODS, pod, type Scene, silent, until, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()

const TRACEPARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00'
/** Changes of other objects begin another trace. */
const OTHER_TRACEPARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00'

/** A client whose watches of the resource are delayed between hold() and release(), as if the API server were slow. */
function delaying(kube: KubeClient, resource: string) {
  let held: PromiseWithResolvers<void> | undefined
  const watch: KubeClient['watch'] = async function* (path, options) {
    for await (const event of kube.watch(path, options)) {
      if (path.includes(resource)) await held?.promise
      yield event as never
    }
  }
  return {
    kube: { ...kube, watch },
    hold: () => {
      held ??= Promise.withResolvers()
    },
    release: () => {
      held?.resolve()
      held = undefined
    },
  }
}

/** A client whose answers to the creation of a Pod wait until they are released. */
function answeringLate(kube: KubeClient) {
  const { promise: released, resolve: release } = Promise.withResolvers<void>()
  const late = replacedMethods(kube, (own) => ({
    async create(path, object, options) {
      const created = await own.create<never>(path, object, options)
      if (path.endsWith('/pods')) await released
      return created
    },
  }))
  return { kube: late, release }
}

/** A client that answers each write of a run a moment after a watch has reported it. */
function answeringBehind(kube: KubeClient) {
  const told = new Map<string, PromiseWithResolvers<void>>()
  const tellingOf = ({ metadata: { uid, resourceVersion } }: KubeObject): PromiseWithResolvers<void> => {
    const version = `${uid} ${resourceVersion}`
    const telling = told.get(version) ?? Promise.withResolvers<void>()
    told.set(version, telling)
    return telling
  }
  const behind = async <T>(path: string, answer: Promise<T>): Promise<T> => {
    if (/widgets|pods/.test(path)) await tellingOf((await answer) as KubeObject).promise
    return answer
  }
  return {
    kube: replacedMethods(kube, (own) => ({
      create: (path, ...of) => behind(path, own.create<never>(path, ...of)),
      patch: (path, ...of) => behind(path, own.patch<never>(path, ...of)),
    })),
    /** The bridge has taken the change. */
    watched: (object: KubeObject) => void setTimeout(() => tellingOf(object).resolve(), 20),
  }
}

async function traceIdOf(ref: ResourceRef, namespace: string, name: string): Promise<string | undefined> {
  const { primary } = await fixture.events.observe({ primary: { ref, namespace, name } })
  return primary?.traceparent?.split('-')[1]
}

interface Circumstances {
  /** The client of the dispatcher. */
  kube?: KubeClient
  isHeldBack?: boolean
  /** What is held back; left out: all. */
  resource?: string
  /** Overrides the spec of the Reconciler. */
  spec?: object
  behave?: (input: RunInput) => Outcome
  /** Called when the watch has reported a change. */
  watched?: (object: KubeObject) => void
}

/** A dispatcher and a bridge whose watch is held back as soon as the function is called for the first time. */
async function delayed(
  name: string,
  ownWrites: (scene: Scene) => BridgeDeps['ownWrites'],
  { kube: client = fixture.kube, isHeldBack = true, resource = '', spec, behave, watched }: Circumstances = {},
) {
  const changes = ['Generation', 'Labels', 'Annotations']
  const object = await fixture.reconciler(name, { owns: [PODS], changes, writes: ['Metadata'], ...spec })
  const scene = await fixture.scene(name, { object, dispatcher: { kube: client } })
  const { kube, hold, release } = delaying(fixture.kube, resource)
  const published: SeenChange[] = []
  const asked: string[] = []
  const bridge = createBridge({
    kube,
    events: fixture.events,
    queue: scene.queue,
    log: silent,
    ownWrites: ownWrites(scene),
    tracer: { begin: ({ kind }) => (kind === 'Widget' ? TRACEPARENT : OTHER_TRACEPARENT) },
    observer: {
      published: (change) => published.push(change),
      seen: ({ object }) => watched?.(object),
      enqueued: ({ by, object: changed }) => asked.push(`${by} ${changed?.kind}`),
    },
  })
  const stop = new AbortController()
  const running = bridge.run(stop.signal, 2000)
  await until(() => bridge.status().resources.length >= 3 && bridge.status().resources.every(({ synced }) => synced))

  const seen: unknown[] = []
  scene.behave('w', (input) => {
    const { object, owned } = input
    if (seen.length === 0 && isHeldBack) hold()
    seen.push([object!.status, owned['Pod.v1']!.map(({ metadata }) => metadata.name)])
    if (behave) return behave(input)
    return { apply: [pod(`${name}-pod`)], metadata: { labels: { size: 'one' } }, status: { phase: 'RUNNING' } }
  })
  await fixture.kube.create(resourcePath(WIDGETS, name), {
    apiVersion: 'test.fairlead.dev/v1',
    kind: 'Widget',
    metadata: { name: 'w', namespace: name },
    spec: {},
  })
  if (isHeldBack) await scene.ended('w')
  const idle = () =>
    until(async () => {
      const { queued, running } = await scene.queue.depth(name)
      return queued + running === 0
    })
  const runs = () => scene.stepsOf('w').filter(({ step }) => step === 'started').length

  return {
    scene,
    seen,
    runs,
    published,
    /** The reconcilers and kinds of the keys that changes have enqueued. */
    asked,
    release,
    /** Lets the watch report the writes of the run when the run has ended, and waits until all reports are handled. */
    async echo() {
      await idle()
      const version = (await scene.get(WIDGETS, 'w'))!.metadata.resourceVersion
      expect(published.some((change) => change.object.metadata.name === `${name}-pod`)).toBe(false)
      release()
      await until(() => published.some((change) => change.object.metadata.name === `${name}-pod`))
      await until(() => published.some((change) => change.object.metadata.resourceVersion === version))
      await idle()
    },
    async [Symbol.asyncDispose]() {
      stop.abort()
      await running
      await scene.stop()
      await fixture.kube.delete(resourcePath(RECONCILERS, undefined, name))
    },
  }
}

const RUNNING = { phase: 'RUNNING', observedGeneration: 1 }

describe('what a run wrote', () => {
  it('is what the next run sees, before the watch tells of it, and its echo makes no other run', async () => {
    await using world = await delayed('same-process', ({ dispatcher }) => dispatcher)
    const { scene, seen, runs } = world
    seen.length = 0
    seen.push('from here on')
    expect((await scene.run('w')).result).toBe('success')
    expect(seen[1]).toEqual([RUNNING, ['same-process-pod']])
    expect(runs()).toBe(2)
    await world.echo()
    expect(runs()).toBe(2)
    expect(scene.writes('w')).toEqual(['create Pod same-process-pod', 'metadata Widget w', 'status Widget w'])
  })

  it('carries the trace of the change that it answers', async () => {
    await using world = await delayed('traced', ({ dispatcher }) => dispatcher)
    const { scene } = world
    const traceOf = (ref: ResourceRef, name: string) => traceIdOf(ref, 'traced', name)
    const [, traceId] = TRACEPARENT.split('-')
    expect([await traceOf(WIDGETS, 'w'), await traceOf(PODS, 'traced-pod')]).toEqual([traceId, traceId])
    const finished = scene.stepsOf('w').find(({ step }) => step === 'finished')
    expect(finished).toMatchObject({ traceId, parentSpanId: TRACEPARENT.split('-')[2] })
    await world.echo()
    expect(await traceOf(PODS, 'traced-pod')).toBe(traceId)
  })

  it('is in the trace of its run when the watch tells of it before the API server has answered', async () => {
    const { kube, release } = answeringLate(fixture.kube)
    await using world = await delayed('early', ({ dispatcher }) => dispatcher, { kube, isHeldBack: false })
    const { scene, published } = world
    await until(() => published.some(({ object }) => object.metadata.name === 'early-pod'))
    expect(scene.writes('w')).toEqual([])
    expect(await traceIdOf(PODS, 'early', 'early-pod')).toBe(TRACEPARENT.split('-')[1])
    release()
    expect((await scene.ended('w')).result).toBe('success')
  })

  it('asks no run to look again when the watch tells of it before the API server has answered', async () => {
    const called = async (name: string, circumstances: Circumstances) => {
      await using world = await delayed(name, ({ dispatcher }) => dispatcher, circumstances)
      await world.scene.ended('w')
      if (circumstances.isHeldBack !== false) await world.echo()
      await until(() => world.published.some(({ object }) => object.metadata.name === `${name}-pod`))
      await until(async () => {
        const { queued, running } = await world.scene.queue.depth(name)
        return queued + running === 0
      })
      const { resourceVersion } = (await world.scene.get(WIDGETS, 'w'))!.metadata
      await until(() => world.published.some(({ object }) => object.metadata.resourceVersion === resourceVersion))
      return { asked: world.asked, calls: world.seen.length, runs: world.runs() }
    }
    const late = await called('told-late', {})
    const { kube, watched } = answeringBehind(fixture.kube)
    expect(await called('told-early', { kube, watched, isHeldBack: false })).toEqual(late)
  })

  it('told by another process’s bridge makes runs that see it and write nothing', async () => {
    await using world = await delayed('other-process', () => undefined)
    const { scene, seen, runs } = world
    const before = seen.length
    await world.echo()
    const writes = scene.writes('w')
    expect(writes).toEqual(['create Pod other-process-pod', 'metadata Widget w', 'status Widget w'])
    // One run for each reported change.
    expect(runs()).toBeLessThanOrEqual(1 + writes.length)
    for (const state of seen.slice(before)) expect(state).toEqual([RUNNING, ['other-process-pod']])
  })
})

describe('a status by which a run names another namespace of related objects', () => {
  const { strategy: _, ...configMaps } = CONFIG_MAPS
  const related = [{ ...configMaps, namespacePath: 'status.namespace' }]
  const namesOf = ({ related }: RunInput) => related['ConfigMap.v1']!.map(({ metadata }) => metadata.name)
  const createNamespace = (name: string) => fixture.kube.create('/api/v1/namespaces', { metadata: { name } })
  const createMap = (namespace: string, name: string) =>
    fixture.kube.create<KubeObject>(resourcePath(CONFIG_MAPS, namespace), configMap(name))

  it('shows the function what is there, in the same run', async () => {
    await using scene = await fixture.scene('named-now', { spec: { related } })
    await createNamespace('named-now-there')
    await fixture.events.put(CONFIG_MAPS, 'added', await createMap('named-now-there', 'there'))
    await fixture.events.put(CONFIG_MAPS, 'added', await createMap('named-now', 'here'))
    const seen: string[][] = []
    await scene.widget('w', (input) => {
      seen.push(namesOf(input))
      return { status: { namespace: 'named-now-there' } }
    })
    expect((await scene.ended('w')).result).toBe('success')
    expect(seen).toEqual([[], ['there']])
    expect(scene.writes('w')).toEqual(['status Widget w'])
  })

  it('makes one more run when the watch tells of it, since changes there have made none until then', async () => {
    await createNamespace('named-late-there')
    const calls: string[][] = []
    await using world = await delayed('named-late', ({ dispatcher }) => dispatcher, {
      spec: { related, changes: ['Generation'] },
      resource: WIDGETS.resource,
      behave: (input) => {
        calls.push(namesOf(input))
        // A later write by the same run must not hide the first one.
        return { status: { namespace: 'named-late-there', ...(calls.length > 1 && { phase: 'DONE' }) } }
      },
    })
    const { runs, published, release, scene } = world
    await createMap('named-late-there', 'late')
    await until(() => published.some(({ object }) => object.metadata.name === 'late'))
    expect([runs(), calls]).toEqual([1, [[], [], []]])
    release()
    await until(() => runs() === 2)
    await scene.ended(
      'w',
      scene.steps.findLastIndex(({ step }) => step === 'started'),
    )
    expect(calls.at(-1)).toEqual(['late'])
    expect(scene.writes('w')).toEqual(['status Widget w', 'status Widget w'])
    const { resourceVersion } = (await scene.get(WIDGETS, 'w'))!.metadata
    await until(() => published.some(({ object }) => object.metadata.resourceVersion === resourceVersion))
    expect(runs()).toBe(2)
  })
})
