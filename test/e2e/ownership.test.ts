import { ConfigMap, Deployment, kind, reconciler, resource, Service, z } from 'fairlead'
import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, expect, it } from 'vitest'

const EndpointSlice = kind({
  group: 'discovery.k8s.io',
  version: 'v1',
  kind: 'EndpointSlice',
  plural: 'endpointslices',
})
const ReplicaSet = kind({ group: 'apps', version: 'v1', kind: 'ReplicaSet', plural: 'replicasets' })

/** Runs at each change of the slices, and reports how many it receives. */
const published = reconciler({
  name: 'published',
  for: Service,
  owns: [EndpointSlice, ConfigMap],
  reconcile: ({ object: { metadata }, owned }) => ({
    apply: [
      ConfigMap.of({
        metadata: { name: `${metadata.name}-slices` },
        data: { round: metadata.labels?.['round'] ?? '', n: `${owned(EndpointSlice).length}` },
      }),
    ],
  }),
})

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ replicas: z.int32() }),
  status: z.object({}),
})
const labels = { app: 'shop' }
const shops = reconciler({
  name: 'shops',
  for: Shop,
  owns: [Deployment],
  reconcile: ({ object: { metadata, spec } }) => ({
    apply: [
      Deployment.of({
        metadata: { name: metadata.name, labels },
        spec: {
          replicas: spec.replicas,
          selector: { matchLabels: labels },
          template: { metadata: { labels }, spec: { containers: [{ name: 'c', image: 'busybox' }] } },
        },
      }),
    ],
  }),
})

/** Owns what the Deployment controller makes for the same owner, with annotations copied from the Deployment. */
const revisions = reconciler({
  name: 'revisions',
  for: Deployment,
  owns: [ReplicaSet, ConfigMap],
  reconcile: ({ object: { metadata, spec }, owned }) => ({
    apply: [
      ConfigMap.of({
        metadata: { name: `${metadata.name}-revisions` },
        data: { replicas: `${spec?.replicas}`, n: `${owned(ReplicaSet).length}` },
      }),
    ],
  }),
})

let operators: RunningOperators
beforeAll(async () => {
  operators = await runOperators([published, shops, revisions], { controllers: true })
})
afterAll(() => operators?.[Symbol.asyncDispose]())

it('EndpointSlices that their controller creates for a Service are not pruned', async () => {
  const spec = { selector: labels, ports: [{ port: 80 }] }
  await operators.create(Service, Service.of({ metadata: { name: 'a', labels }, spec }))
  const slices = async () => (await operators.list(EndpointSlice)).filter(({ metadata }) => metadata.labels?.['app'])
  await expect.poll(async () => (await slices()).length, { timeout: 60_000 }).toBe(1)
  const [before] = await slices()
  // The slice has a run of its own; each of these comes after it.
  for (const round of ['1', '2', '3']) {
    await operators.patch(Service, 'a', { metadata: { labels: { round } } })
    const isCopied = async () => (await slices())[0]?.metadata.labels?.['round'] === round
    await expect.poll(isCopied, { timeout: 60_000 }).toBe(true)
    const seen = await operators.until(ConfigMap, 'a-slices', (found) => found?.data?.['round'] === round)
    expect(seen?.data).toEqual({ round, n: '0' })
  }
  expect((await slices()).map(({ metadata }) => metadata.uid)).toEqual([before?.metadata.uid])
})

it('ReplicaSets with copied annotations of the Deployment are not pruned', async () => {
  await operators.create(Shop, Shop.of({ metadata: { name: 's' }, spec: { replicas: 1 } }))
  const scaled = (replicas: string) =>
    operators.until(ConfigMap, 's-revisions', (found) => found?.data?.['replicas'] === replicas)
  await scaled('1')
  await expect.poll(async () => (await operators.list(ReplicaSet)).length, { timeout: 60_000 }).toBe(1)
  const [before] = await operators.list(ReplicaSet)
  expect(Object.keys(before?.metadata.annotations ?? {})).toEqual(
    expect.arrayContaining(['fairlead.dev/desired', 'fairlead.dev/reconciler']),
  )
  await operators.patch(Shop, 's', { spec: { replicas: 2 } })
  await scaled('2')
  const after = await operators.list(ReplicaSet)
  expect(after.map(({ metadata }) => metadata.uid)).toEqual([before?.metadata.uid])
  const config = await operators.get(ConfigMap, 's-revisions')
  expect(config?.data?.['n']).toBe('0')
})
