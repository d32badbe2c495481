import { ConfigMap, reconciler, resource, z } from 'fairlead'
import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({}),
  status: z.object({ shared: z.array(z.string()).optional() }),
})
/** Maps that others make, and of which several shops are owners. */
const Shared = { ...ConfigMap, byOwner: true } as const
const shops = reconciler({
  name: 'shops',
  for: Shop,
  related: [Shared],
  reconcile: ({ related }) => ({ status: { shared: related(Shared).map(({ metadata }) => metadata.name) } }),
})

let operators: RunningOperators
beforeAll(async () => {
  operators = await runOperators([shops], { controllers: true, timeoutSeconds: 120 })
})
afterAll(() => operators?.[Symbol.asyncDispose]())

const sees = (name: string, ...maps: string[]) =>
  operators.until(Shop, name, (found) => found?.status.shared?.join() === maps.join())

it('a function is given the objects that name its object as an owner, and runs when they change or leave it', async () => {
  const owners: KubeObject[] = []
  for (const name of ['a', 'b', 'c'])
    owners.push(await operators.create(Shop, Shop.of({ metadata: { name }, spec: {} })))
  const refTo = ({ apiVersion, kind, metadata }: KubeObject) => ({
    ...{ apiVersion, kind, name: metadata.name, uid: metadata.uid ?? '' },
  })
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
