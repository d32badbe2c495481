import { afterAll, beforeAll, expect, it } from 'vitest'
import { z } from 'zod'
import type { RunContext, RunInput } from '#contracts'
import { resourcePath } from '#kube'
import { ConfigMap, Pod, type Reconciler, reconciler, resource, toInvoke } from '#sdk'
import { CONFIG_MAPS, configMap, PODS, pod, startFixture, WIDGETS } from './fixture.ts'

const Widget = resource({
  group: WIDGETS.group,
  version: WIDGETS.version,
  kind: WIDGETS.kind,
  plural: WIDGETS.resource,
  spec: z.object({}),
  status: z.object({}),
})

let fixture: Awaited<ReturnType<typeof startFixture>>
let scene: Awaited<ReturnType<typeof fixture.scene>>
beforeAll(async () => {
  fixture = await startFixture()
  scene = await fixture.scene('versions', { spec: { finalize: true } })
})
afterAll(async () => {
  await scene?.stop()
  await fixture?.[Symbol.asyncDispose]()
})

/** As a process that has this version calls it; the Reconciler is that of the newer one. */
const versionOf = (one: Reconciler) => (input: RunInput, context: RunContext) => toInvoke(one)(input, context)

const older = versionOf(
  reconciler({ name: 'versions', for: Widget, owns: [Pod], reconcile: () => ({ apply: [pod('any')] }) }),
)
const newer = (name: string) =>
  versionOf(
    reconciler({
      name: 'versions',
      for: Widget,
      owns: [Pod, ConfigMap],
      reconcile: () => ({ apply: [pod(name), configMap(name)] }),
      finalize: () => undefined,
    }),
  )

it('what a newer version of a function has made is not deleted by an older one that knows no such kind', async () => {
  await scene.widget('grown', newer('grown'))
  await scene.ended('grown')
  scene.behave('grown', older)
  expect(await scene.run('grown')).toMatchObject({ result: 'error', message: expect.stringContaining('ConfigMap.v1') })
  expect(await scene.get(CONFIG_MAPS, 'grown')).toBeDefined()
  expect(await scene.get(PODS, 'grown')).toBeDefined()
  scene.behave('grown', newer('grown'))
  expect((await scene.run('grown')).result).toBe('success')
})

it('an object that waits for its clean-up is not let go by an older version of its function that has none', async () => {
  await scene.widget('going', newer('going'))
  await scene.ended('going')
  scene.behave('going', older)
  await fixture.kube.delete(resourcePath(WIDGETS, scene.name, 'going'))
  await scene.see(WIDGETS, 'going')
  expect((await scene.run('going')).result).toBe('error')
  expect(await scene.get(WIDGETS, 'going')).toBeDefined()
  scene.behave('going', newer('going'))
  await scene.run('going')
  expect(await scene.get(WIDGETS, 'going')).toBeUndefined()
})
