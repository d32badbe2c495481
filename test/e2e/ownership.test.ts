import { readFile } from 'node:fs/promises'
import { ConfigMap, Deployment, kind, PersistentVolumeClaim, reconciler, resource, Secret, Service, z } from 'fairlead'
import { type RunningOperators, runOperators } from 'fairlead/testing/cluster'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { kubectlFor } from '../support/kubectl.ts'

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

const Namespace = kind<{ metadata?: object }>({ group: '', version: 'v1', kind: 'Namespace', plural: 'namespaces' })
const Event = kind({ group: 'events.k8s.io', version: 'v1', kind: 'Event', plural: 'events' })

const Vault = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Vault',
  plural: 'vaults',
  spec: z.object({ text: z.string() }),
  status: z.object({ secrets: z.int32() }),
})

const Claim = { ...PersistentVolumeClaim, strategy: 'Apply' } as const

/** Its key and its claim, and a backup that its end makes, are needed after it. */
const vaults = reconciler({
  name: 'vaults',
  for: Vault,
  owns: [ConfigMap, Secret, Claim],
  reconcile({ object: { metadata, spec }, owned }) {
    const key = Secret.of({ metadata: { name: `${metadata.name}-key` }, stringData: { key: 'k' } })
    const claim = Claim.of({
      metadata: { name: `${metadata.name}-data` },
      spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } },
    })
    return {
      apply: [
        ConfigMap.of({ metadata: { name: `${metadata.name}-config` }, data: { text: spec.text } }),
        { ...key, retain: true },
        { ...claim, retain: true },
      ],
      status: { secrets: owned(Secret).length },
    }
  },
  finalize({ object: { metadata, spec } }) {
    const backup = ConfigMap.of({ metadata: { name: `${metadata.name}-backup` }, data: { text: spec.text } })
    return { apply: [{ ...backup, retain: true }] }
  },
})

const Tenant = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Tenant',
  plural: 'tenants',
  scope: 'Cluster',
  spec: z.object({}),
  status: z.object({}),
})

const tenants = reconciler({
  name: 'tenants',
  for: Tenant,
  owns: [{ ...Namespace, adopt: true }, ConfigMap],
  reconcile: ({ object: { metadata } }) => ({
    apply: [
      { ...Namespace.of({ metadata: { name: metadata.name, labels: { tenant: metadata.name } } }), retain: true },
      ConfigMap.of({ metadata: { name: 'tenant', namespace: metadata.name } }),
    ],
  }),
})

let operators: RunningOperators
beforeAll(async () => {
  operators = await runOperators([published, shops, revisions, vaults, tenants], { controllers: true })
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

const isGone = (found: unknown): boolean => found === undefined

it('what is retained stays when its object is deleted, belongs to the next one of that name, and is repaired for it', async () => {
  await operators.create(Vault, Vault.of({ metadata: { name: 'v' }, spec: { text: 'one' } }))
  await operators.until(Vault, 'v', (found) => found?.status.secrets === 1)
  const key = await operators.get(Secret, 'v-key')
  const claim = await operators.get(Claim, 'v-data')
  expect(key?.metadata.ownerReferences).toBeUndefined()

  await operators.delete(Vault, 'v')
  await operators.until(Vault, 'v', isGone)
  await operators.until(ConfigMap, 'v-config', isGone)
  expect((await operators.get(ConfigMap, 'v-backup'))?.data).toEqual({ text: 'one' })
  expect((await operators.get(Secret, 'v-key'))?.metadata.uid).toBe(key?.metadata.uid)

  await operators.create(Vault, Vault.of({ metadata: { name: 'v' }, spec: { text: 'two' } }))
  await operators.until(Vault, 'v', (found) => found?.status.secrets === 1)
  expect((await operators.get(Secret, 'v-key'))?.metadata.uid).toBe(key?.metadata.uid)
  expect((await operators.get(ConfigMap, 'v-backup'))?.data).toEqual({ text: 'one' })
  const adopted = async () => (await operators.list(Event)).filter((event) => event['reason'] === 'Adopted')
  await expect.poll(async () => (await adopted()).length, { timeout: 60_000 }).toBe(2)
  const told = (await adopted()).map(({ note }) => String(note))
  for (const object of ['Secret default/v-key', 'PersistentVolumeClaim default/v-data'])
    expect(told.some((note) => note.startsWith(`${object} was retained for an earlier Vault`))).toBe(true)
  const { uid } = (await operators.get(Vault, 'v'))!.metadata
  expect((await operators.get(Claim, 'v-data'))?.metadata).toMatchObject({
    uid: claim?.metadata.uid,
    annotations: { 'fairlead.dev/retained-for': `Vault.example.com/v/${uid}` },
  })

  await operators.patch(Secret, 'v-key', { data: { key: 'YW5vdGhlcg==' } })
  await operators.until(Secret, 'v-key', (found) => found?.data?.['key'] === 'aw==')
  await operators.delete(Secret, 'v-key')
  await operators.until(Secret, 'v-key', (found) => found !== undefined && found.metadata.uid !== key?.metadata.uid)
})

it('the command of the reference lists what is retained, and for what', async () => {
  const page = await readFile(new URL('../../docs/functions/ownership.md', import.meta.url), 'utf8')
  const [, path = ''] = /kubectl get configmaps -A -o (jsonpath='.+')$/m.exec(page) ?? []
  const { uid } = (await operators.kube.get('/apis/example.com/v1/namespaces/default/vaults/v')).metadata
  const earlier = (await operators.get(ConfigMap, 'v-backup'))?.metadata.annotations?.['fairlead.dev/retained-for']
  const kubectl = await kubectlFor({ kubeconfig: operators.cluster?.kubeconfig ?? '' })
  const lines = await kubectl(['get', 'configmaps,secrets', '-A', '-o', path.replaceAll("'", '')])
  expect(lines.trim().split('\n').sort()).toEqual([
    `default/v-backup ${earlier}`,
    `default/v-key Vault.example.com/v/${uid}`,
  ])
})

it('a Namespace that was there is taken over, and stays when its object is deleted', async () => {
  const path = (name = '') => `/apis/example.com/v1/tenants/${name}`
  await operators.kube.create('/api/v1/namespaces', { metadata: { name: 'shop', labels: { theirs: 'yes' } } })
  await operators.kube.create(path().slice(0, -1), Tenant.of({ metadata: { name: 'shop' }, spec: {} }))
  await operators.until(ConfigMap, 'tenant', (found) => found !== undefined, 'shop')
  const namespace = await operators.kube.get('/api/v1/namespaces/shop')
  expect(namespace.metadata).toMatchObject({ labels: { theirs: 'yes', tenant: 'shop' } })
  expect(namespace.metadata.ownerReferences).toBeUndefined()

  await operators.kube.delete(path('shop'), { propagationPolicy: 'Background' })
  await operators.until(ConfigMap, 'tenant', isGone, 'shop')
  expect((await operators.kube.get('/api/v1/namespaces/shop')).metadata).toMatchObject({ uid: namespace.metadata.uid })
  expect((await operators.kube.get('/api/v1/namespaces/shop')).metadata).not.toHaveProperty('deletionTimestamp')
})
