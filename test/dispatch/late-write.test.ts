import { afterAll, beforeAll, expect, it } from 'vitest'
import { createBridge } from '#bridge'
import type { KubeObject } from '#contracts'
import { type KubeClient, resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { CONFIG_MAPS, configMap, silent, startFixture, until, WIDGETS } from './fixture.ts'

const NAME = 'late-write'

let fixture: Awaited<ReturnType<typeof startFixture>>
beforeAll(async () => {
  fixture = await startFixture()
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

/** The first apply after delay() arrives only on land(), although its caller has given up by then, as if it had waited there. */
function delayingApply(kube: KubeClient) {
  const landing = Promise.withResolvers<void>()
  let late: Promise<unknown> | 'next' | undefined
  const apply: KubeClient['apply'] = (path, object, options) => {
    if (late !== 'next') return kube.apply(path, object, options)
    const { signal, ...rest } = options
    late = landing.promise.then(() => kube.apply(path, object, rest))
    return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason as Error)))
  }
  return {
    kube: { ...kube, apply },
    delay: () => {
      late = 'next'
    },
    isDelayed: () => late instanceof Promise,
    land: async () => {
      landing.resolve()
      return (await late) as KubeObject
    },
  }
}

it('a write that arrives after a newer run of its key is repaired by the run that its watch event causes', async () => {
  const created = await fixture.kube.create<KubeObject>(resourcePath(RECONCILERS), {
    apiVersion: 'fairlead.dev/v1alpha1',
    kind: 'Reconciler',
    metadata: { name: NAME },
    spec: { for: { ...WIDGETS, namespaces: [NAME] }, owns: [CONFIG_MAPS], invoke: { pull: {} } },
  })
  const { kube, delay, isDelayed, land } = delayingApply(fixture.kube)
  const scene = await fixture.scene(NAME, { object: created, dispatcher: { kube }, queue: { leaseMs: 900 } })
  const bridge = createBridge({
    kube: fixture.kube,
    events: fixture.events,
    queue: scene.queue,
    log: silent,
    ownWrites: scene.dispatcher,
  })
  const stop = new AbortController()
  const running = bridge.run(stop.signal, 2000)
  const valueIs = (value: string) =>
    until(
      async () => ((await scene.get(CONFIG_MAPS, 'map'))?.['data'] as { value?: string } | undefined)?.value === value,
    )
  let value = 'first'
  scene.behave('w', () => ({ apply: [configMap('map', { value })] }))
  const widget = { apiVersion: 'test.fairlead.dev/v1', kind: 'Widget', metadata: { name: 'w', namespace: NAME } }
  await fixture.kube.create(resourcePath(WIDGETS, NAME), { ...widget, spec: {} })
  await valueIs('first')

  delay()
  value = 'old'
  await scene.enqueue('w')
  await until(isDelayed)
  value = 'new'
  await fixture.js.admin.streams.purge(`${NAME}_WORK`, { filter: `${NAME}.key.>` })
  await valueIs('new')
  expect((await land())['data']).toEqual({ value: 'old' })
  await valueIs('new')

  stop.abort()
  await running
  await scene.stop()
  await fixture.kube.delete(resourcePath(RECONCILERS, undefined, NAME))
})
