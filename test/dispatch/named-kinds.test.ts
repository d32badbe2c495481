import { expect, it } from 'vitest'
import type { RunInput } from '#contracts'
import { resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { CONFIG_MAPS, type Scene, SECRETS, useFixture, WIDGETS } from './fixture.ts'

const fixture = useFixture()

const onDemand = ({ group, version, resource, kind }: typeof CONFIG_MAPS) => ({
  group,
  version,
  resource,
  kind,
  kindPath: 'spec.targets[*]',
  byName: 'spec.targets[*].name',
})
const LIMITS = { ...CONFIG_MAPS, resource: 'limitranges', kind: 'LimitRange' }
const QUOTAS = { ...CONFIG_MAPS, resource: 'resourcequotas', kind: 'ResourceQuota' }
const AT = '2030-01-01T00:00:00Z'
let version = 1

const put = (ref: typeof CONFIG_MAPS, namespace: string, name: string) =>
  fixture.events.put(ref, 'added', {
    apiVersion: 'v1',
    kind: ref.kind,
    metadata: { name, namespace, uid: `${namespace}-${ref.kind}-${name}`, resourceVersion: String(++version) },
  })

const target = async (scene: Scene, ...targets: [kind: string, name: string][]) => {
  const spec = { targets: targets.map(([kind, name]) => ({ apiVersion: 'v1', kind, name })) }
  await fixture.kube.patch(resourcePath(WIDGETS, scene.name, 'w'), { spec }, 'merge')
  await scene.see(WIDGETS, 'w')
}

/** A widget whose function notes what it is given of each kind. */
async function noting(scene: Scene) {
  const calls: Record<string, string[]>[] = []
  await scene.widget('w', ({ related }: RunInput) => {
    const named = Object.entries(related).map(([kind, all]) => [kind, all.map(({ metadata }) => metadata.name)])
    calls.push(Object.fromEntries(named) as Record<string, string[]>)
    return {}
  })
  await scene.ended('w')
  return calls
}

it('a function is not called while a kind that its object names is not listed for it, and then sees its objects', async () => {
  await using scene = await fixture.scene('unlisted', { spec: { related: [QUOTAS, LIMITS].map(onDemand) } })
  const calls = await noting(scene)
  expect(calls).toEqual([{ 'ResourceQuota.v1': [], 'LimitRange.v1': [] }])
  calls.length = 0
  await put(QUOTAS, scene.name, 'q')
  await put(QUOTAS, scene.name, 'other')
  await target(scene, ['ResourceQuota', 'q'])
  expect(await scene.run('w')).toMatchObject({ result: 'error' })

  // Listed for others, or in another namespace: it may have none of this one.
  await fixture.events.setCursor(QUOTAS, undefined, { resourceVersion: '1', at: AT, covers: ['another@x'] })
  await fixture.events.setCursor(QUOTAS, 'elsewhere', { resourceVersion: '1', at: AT, covers: [scene.coverage()] })
  const why = 'resourcequotas.v1 is not served by the API server: install its definition'
  const told = { conditions: [{ type: 'NamedKinds', status: 'False', message: why }] }
  const reconciler = scene.reconciler()
  const { metadata } = reconciler
  await fixture.events.put(RECONCILERS, 'modified', {
    ...reconciler,
    metadata: { ...metadata, resourceVersion: '2' },
    status: told,
  })
  expect(await scene.run('w')).toMatchObject({ result: 'error' })
  expect(await scene.condition('w')).toMatchObject({
    status: 'False',
    reason: 'KindNotListed',
    message: `spec.targets[*] names ResourceQuota.v1, and the function is not called: ${why}`,
  })
  expect(calls).toEqual([])

  await fixture.events.setCursor(QUOTAS, scene.name, { resourceVersion: '1', at: AT, covers: [scene.coverage()] })
  expect(await scene.run('w')).toMatchObject({ result: 'success' })
  expect(calls[0]).toEqual({ 'ResourceQuota.v1': ['q'], 'LimitRange.v1': [] })
  calls.length = 0
  expect(await scene.condition('w')).toMatchObject({ status: 'True' })

  // A bridge has ended the watch.
  await fixture.events.setCursor(QUOTAS, scene.name, { resourceVersion: '1', at: AT, covers: [] })
  expect(await scene.run('w')).toMatchObject({ result: 'error' })
  expect(calls).toEqual([])
})

it('a kind that is not granted is a condition that names it, whether any kind is granted or not; others work', async () => {
  const granted = { related: [CONFIG_MAPS].map(onDemand), kindPaths: ['spec.targets[*]', 'spec.other'] }
  await using scene = await fixture.scene('ungranted', { spec: granted })
  const calls = await noting(scene)
  calls.length = 0
  await put(CONFIG_MAPS, scene.name, 'm')
  await target(scene, ['ConfigMap', 'm'], ['Secret', 'm'])
  expect(await scene.run('w')).toMatchObject({ result: 'terminal' })
  expect(await scene.condition('w')).toMatchObject({
    reason: 'KindNotGranted',
    message: expect.stringContaining('spec.targets[*] names Secret.v1,') as string,
  })
  expect((await scene.condition('w'))?.['message']).toContain('fairlead install --kinds Secret.v1=PLURAL')
  expect(calls).toEqual([])
  await target(scene, ['ConfigMap', 'm'])
  expect(await scene.run('w')).toMatchObject({ result: 'success' })
  expect(calls[0]).toEqual({ 'ConfigMap.v1': ['m'] })
  calls.length = 0

  await fixture.kube.patch(resourcePath(WIDGETS, scene.name, 'w'), { spec: { other: { kind: 'ConfigMap' } } }, 'merge')
  await scene.see(WIDGETS, 'w')
  expect(await scene.run('w')).toMatchObject({ result: 'terminal' })
  expect(calls).toEqual([])
})

it('an object that is being deleted says that it waits for a grant, and goes when it names no such kind any more', async () => {
  const spec = { finalize: true, related: [CONFIG_MAPS].map(onDemand) }
  await using scene = await fixture.scene('going', { spec })
  const calls = await noting(scene)
  calls.length = 0
  await target(scene, ['Secret', 'm'])
  await fixture.kube.delete(resourcePath(WIDGETS, scene.name, 'w'))
  await scene.see(WIDGETS, 'w')
  expect(await scene.run('w')).toMatchObject({ result: 'terminal' })
  const message = String((await scene.condition('w'))?.['message'])
  expect(message).toMatch(
    /names Secret\.v1,.* --kinds Secret\.v1=PLURAL\. Its deletion waits for this, or until the object/,
  )
  expect(calls).toEqual([])
  await target(scene)
  expect(await scene.run('w')).toMatchObject({ result: 'success' })
  expect(calls[0]).toEqual({ 'ConfigMap.v1': [] })
  expect(await scene.get(WIDGETS, 'w')).toBeUndefined()
})

it('names of one kind do not count for another, and a kind that is not named is not read', async () => {
  const related = [CONFIG_MAPS, SECRETS].map(onDemand)
  await using scene = await fixture.scene('paired', { spec: { related } })
  const calls = await noting(scene)
  calls.length = 0
  await fixture.listed(SECRETS)
  for (const name of ['a', 'b']) await put(CONFIG_MAPS, scene.name, name)
  await target(scene, ['ConfigMap', 'a'], ['Secret', 'b'])
  expect(await scene.run('w')).toMatchObject({ result: 'success' })
  expect(calls[0]).toMatchObject({ 'ConfigMap.v1': ['a'] })
  const names = Array.from({ length: 100 }, (_, n): [string, string] => ['ConfigMap', n === 0 ? 'a' : `none${n}`])
  await target(scene, ...names)
  expect(await scene.run('w')).toMatchObject({ result: 'success' })
  expect(calls[1]).toEqual({ 'ConfigMap.v1': ['a'], 'Secret.v1': [] })
})
