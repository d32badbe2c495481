import { ConfigMap, Pod, reconciler, resource, z } from 'fairlead'
import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import { until } from './world.ts'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({}),
  status: z.object({ shared: z.array(z.string()).optional() }),
})
const FORMER = 'example.com/former'
const labels = { in: 'business' }
/** Maps that others make, and of which several shops are owners. */
const Shared = { ...ConfigMap, byOwner: true } as const
const shops = reconciler({
  name: 'shops',
  for: Shop,
  selector: 'in=business',
  owns: [ConfigMap],
  related: [Shared],
  formerFinalizers: [FORMER],
  finalize: ({ object: { metadata } }) => ({
    apply: [{ ...ConfigMap.of({ metadata: { name: `${metadata.name}-closed` } }), retain: true }],
  }),
  reconcile: ({ related }) => ({ status: { shared: related(Shared).map(({ metadata }) => metadata.name) } }),
})

const Gate = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Gate',
  plural: 'gates',
  scope: 'Cluster',
  spec: z.object({}),
  status: z.object({ pods: z.array(z.string()).optional() }),
})
/** Those that run on the Node with the name of the gate, in all namespaces. */
const OnNode = { ...Pod, naming: 'spec.nodeName', selector: 'in=business' } as const
const gates = reconciler({
  name: 'gates',
  for: Gate,
  related: [OnNode],
  reconcile: ({ related }) => ({ status: { pods: related(OnNode).map(({ metadata }) => metadata.name) } }),
})

let operators: RunningOperators
beforeAll(async () => {
  operators = await runOperators([shops, gates], { controllers: true, timeoutSeconds: 120 })
})
afterAll(() => operators?.[Symbol.asyncDispose]())

const sees = (name: string, ...maps: string[]) =>
  operators.until(Shop, name, (found) => found?.status.shared?.join() === maps.join())

it('a function is given the objects that name its object as an owner, and runs when they change or leave it', async () => {
  const owners: KubeObject[] = []
  for (const name of ['a', 'b', 'c'])
    owners.push(await operators.create(Shop, Shop.of({ metadata: { name, labels }, spec: {} })))
  const refTo = ({ apiVersion, kind, metadata: { name, uid = '' } }: KubeObject) => ({ apiVersion, kind, name, uid })
  const [a, b, c] = owners
  for (const { metadata } of owners) await sees(metadata.name)
  const ownerReferences = [refTo(a!), refTo(b!), { ...refTo(c!), controller: true }]
  await operators.create(ConfigMap, ConfigMap.of({ metadata: { name: 'm', ownerReferences } }))
  await operators.create(ConfigMap, ConfigMap.of({ metadata: { name: 'of-nobody' } }))
  for (const { metadata } of owners) await sees(metadata.name, 'm')
  await operators.patch(ConfigMap, 'm', { metadata: { ownerReferences: [refTo(b!)] } })
  for (const name of ['a', 'c']) await sees(name)
  await sees('b', 'm')
  const map = await operators.get(ConfigMap, 'm')
  expect(map?.metadata.ownerReferences).toMatchObject([{ name: 'b' }])
})

it('a function is given the objects that name its object in a field, and runs when they do and when they leave it', async () => {
  const holds = (name: string, ...pods: string[]) =>
    until(async () => {
      const { status } = await operators.kube.get<{ status?: { pods: string[] } }>(resourcePath(Gate, undefined, name))
      return status?.pods.toSorted().join() === pods.join()
    })
  for (const name of ['g', 'h'])
    await operators.kube.create(resourcePath(Gate), Gate.of({ metadata: { name }, spec: {} }))
  const pod = (name: string, more: object = {}) =>
    operators.create(
      Pod,
      Pod.of({ metadata: { name, labels }, spec: { containers: [{ name: 'c', image: 'none' }], ...more } }),
    )
  await holds('g')
  await pod('early', { nodeName: 'g' })
  await pod('late')
  await pod('elsewhere', { nodeName: 'h' })
  await holds('g', 'early')
  await holds('h', 'elsewhere')
  const path = `${resourcePath(Pod, 'default', 'late')}/binding`
  await operators.kube.create(path, {
    apiVersion: 'v1',
    kind: 'Binding',
    metadata: { name: 'late' },
    target: { apiVersion: 'v1', kind: 'Node', name: 'g' },
  })
  await holds('g', 'early', 'late')
  await operators.patch(Pod, 'early', { metadata: { labels: { in: null } } })
  await holds('g', 'late')
  await operators.kube.delete(resourcePath(Pod, 'default', 'late'), { gracePeriodSeconds: 0 })
  await holds('g')
  await holds('h', 'elsewhere')
})

const isGone = (found: unknown): boolean => found === undefined

it('an object that is deleted loses the finalizer of a former operator after finalize, also if it was deleted before', async () => {
  const shop = (name: string, more: object) =>
    operators.create(Shop, Shop.of({ metadata: { name, finalizers: [FORMER], ...more }, spec: {} }))
  const { metadata } = await shop('alive', { labels })
  await sees('alive')
  const found = await operators.get(Shop, 'alive')
  expect(found?.metadata).toMatchObject({ uid: metadata.uid, finalizers: [FORMER, 'fairlead.dev/shops'] })
  await operators.delete(Shop, 'alive')
  await operators.until(Shop, 'alive', isGone)
  expect(await operators.get(ConfigMap, 'alive-closed')).toBeDefined()

  // The function is not for it yet: it waits for the former operator.
  await shop('late', {})
  await operators.delete(Shop, 'late')
  expect((await operators.get(Shop, 'late'))?.metadata.finalizers).toEqual([FORMER])
  await operators.patch(Shop, 'late', { metadata: { labels } })
  await operators.until(Shop, 'late', isGone)
  expect(await operators.get(ConfigMap, 'late-closed')).toBeDefined()
})
