import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { keyOf, parseKey } from '#events'
import { resourcePath } from '#kube'
import type { JetStream } from '#nats'
import { configMaps, controlledBy, widgets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  configMapPath,
  createReconciler,
  installWidgets,
  removeReconcilers,
  startBridge,
  until,
} from './world.ts'

const roles = { group: 'rbac.authorization.k8s.io', version: 'v1', resource: 'roles', kind: 'Role' }
const ROLES = 'roles.v1.rbac.authorization.k8s.io'

let servers: Servers
let nats: Servers['nats']
let kube: Servers['kube']

beforeAll(async () => {
  servers = await startServers()
  ;({ nats, kube } = servers)
  await installWidgets(kube)
})

afterEach(async () => {
  await removeReconcilers(kube)
  await kube.request({ method: 'DELETE', path: configMapPath() })
})

afterAll(() => servers?.[Symbol.asyncDispose]())

const createRole = (name: string): Promise<KubeObject> =>
  kube.create(resourcePath(roles, 'default'), {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'Role',
    metadata: { name, namespace: 'default' },
  })

/** Resolves when the cursor has passed that version. */
const passed = (
  { events }: Awaited<ReturnType<typeof startBridge>>,
  ref: typeof roles,
  { metadata }: Pick<KubeObject, 'metadata'>,
  scope?: string,
) =>
  until(
    async () => {
      const { resourceVersion = '0' } = (await events.cursor(ref, scope)) ?? {}
      return Number(resourceVersion) >= Number(metadata.resourceVersion)
    },
    { what: 'the cursor has passed' },
  )

/** How often the server has ended the connection since. */
function countDisconnects({ nc }: JetStream): () => number {
  let count = 0
  void (async () => {
    for await (const { type } of nc.status()) if (type === 'disconnect') count++
  })()
  return () => count
}

describe('a name longer than a line of the NATS protocol', () => {
  it('is an owner like any other that is not there, and stops nobody', async () => {
    await using bridge = await startBridge(kube, nats.url, { prefix: 'owner' })
    await createReconciler(kube, 'w', { for: widgets, owns: [configMaps] })
    await bridge.synced('configmaps.v1')
    const disconnects = countDisconnects(bridge.js)
    const owner = 'x'.repeat(5000)
    await kube.create(configMapPath(), configMap('child', 'one', controlledBy('Widget', owner)))
    await kube.create(configMapPath(), configMap('other', 'one', controlledBy('Widget', 'w')))
    await until(async () => bridge.keysOf('w').length === 2, { what: 'both owners are enqueued' })
    expect(bridge.keysOf('w')).toEqual(['default.w', keyOf('default', owner)])
    const { owned } = await bridge.events.observe({
      primary: { ref: widgets, ...parseKey(keyOf('default', owner)) },
      owned: [configMaps],
    })
    expect(owned[0]?.map(({ key }) => key.name)).toEqual(['child'])
    expect(disconnects()).toBe(0)
  })

  it('that no object can have is no owner', async () => {
    await using bridge = await startBridge(kube, nats.url, { prefix: 'nobody' })
    await createReconciler(kube, 'w', { for: widgets, owns: [configMaps] })
    await bridge.synced('configmaps.v1')
    for (const [index, owner] of ['..', `x%${'0'.repeat(64)}`, 'a/b', 'w'].entries())
      await kube.create(configMapPath(), configMap(`c${index}`, 'one', controlledBy('Widget', owner)))
    await until(async () => bridge.keysOf('w').includes('default.w'), { what: 'the last one is enqueued' })
    expect(bridge.keysOf('w')).toEqual(['default.w'])
  })

  it('is a name: its object is stored, found by its key, and the same for the next bridge', async () => {
    const name = ':'.repeat(1500)
    const key = keyOf('default', name)
    {
      await using bridge = await startBridge(kube, nats.url, { prefix: 'role' })
      await createReconciler(kube, 'roles', { for: { ...roles, namespaces: ['default'] } })
      await bridge.synced(ROLES)
      const disconnects = countDisconnects(bridge.js)
      await createRole(name)
      await createRole('after')
      await until(async () => bridge.keysOf('roles').length === 2, { what: 'both are enqueued' })
      expect(bridge.keysOf('roles')).toEqual([key, 'default.after'])
      const { primary } = await bridge.events.observe({ primary: { ref: roles, ...parseKey(key) } })
      expect([primary?.key.name, primary?.object.metadata.name]).toEqual([name, name])
      expect(disconnects()).toBe(0)
    }
    await createReconciler(kube, 'more', { for: { ...roles, namespaces: ['default'] } })
    await using next = await startBridge(kube, nats.url, { prefix: 'role' })
    await until(async () => next.keysOf('more').length === 2, { what: 'the new Reconciler has both' })
    await until(async () => next.relists.some(({ resource }) => resource === ROLES), { what: 'they are listed' })
    expect(next.keysOf('more')).toEqual([key, 'default.after'])
    const found = next.relists.filter(({ resource }) => resource === ROLES)
    expect(found.map(({ changed, deleted }) => changed + deleted)).toEqual(found.map(() => 0))
    await kube.delete(resourcePath(roles, 'default', name))
    await until(
      async () => {
        const { primary } = await next.events.observe({ primary: { ref: roles, namespace: 'default', name } })
        return primary === undefined
      },
      { what: 'it is gone' },
    )
  })
})

it('keeps of metadata over max_payload what says which object it is, and the cursor passes it', async () => {
  await using bridge = await startBridge(kube, nats.url, { prefix: 'metadata' })
  await createReconciler(kube, 'maps', { for: configMaps })
  await bridge.synced('configmaps.v1')
  const apiVersion = `${'g'.repeat(60)}.${'g'.repeat(60)}.example.com/v1`
  const owner = { apiVersion, kind: `K${'k'.repeat(60)}`, name: 'n'.repeat(250) }
  const ownerReferences = Array.from({ length: 2650 }, (_, n) => ({ ...owner, uid: `u${n}` }))
  expect(JSON.stringify(ownerReferences).length).toBeGreaterThan(bridge.js.nc.info!.max_payload)
  const { metadata } = await kube.create<KubeObject>(configMapPath(), configMap('big', 'one', { ownerReferences }))
  const later = await kube.create<KubeObject>(configMapPath(), configMap('later', 'one'))
  await passed(bridge, configMaps, later)
  const { primary } = await bridge.events.observe({ primary: { ref: configMaps, namespace: 'default', name: 'big' } })
  expect(primary).toMatchObject({ referenceOnly: true, uid: metadata.uid, resourceVersion: metadata.resourceVersion })
  expect(bridge.keysOf('maps')).toContain('default.big')
})

it.each([
  ['that NATS can never take', 'endless', 'x'.repeat(25_000)],
  ['whose name no event can have', 'control', 'a\u0007b\nc'],
])('lets the cursor pass an object %s, without a run', async (_, prefix, name) => {
  await using bridge = await startBridge(kube, nats.url, { prefix })
  await createReconciler(kube, 'roles', { for: { ...roles, namespaces: ['default'] } })
  await bridge.synced(ROLES)
  const made = await createRole(name)
  await createRole(`after-${prefix}`)
  await passed(bridge, roles, made, 'default')
  await until(async () => bridge.keysOf('roles').includes(`default.after-${prefix}`), {
    what: 'the next one is enqueued',
  })
  expect(bridge.keysOf('roles')).not.toContain(keyOf('default', name))
  await kube.delete(resourcePath(roles, 'default', name))
})

it('keeps of an object that is nested too deeply for JSON a reference, and the cursor passes it', async () => {
  await using bridge = await startBridge(kube, nats.url, { prefix: 'deep' })
  await createReconciler(kube, 'w', { for: widgets })
  await bridge.synced('widgets.v1.example.com')
  const path = resourcePath(widgets, 'default')
  const half = JSON.parse(`${'{"a":'.repeat(2500)}{}${'}'.repeat(2500)}`) as object
  await kube.create(path, { apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name: 'deep' }, spec: half })
  const deeper = [{ op: 'add', path: `/spec${'/a'.repeat(2500)}/a`, value: half }]
  const { metadata } = await kube.patch<KubeObject>(`${path}/deep`, deeper, 'json')
  await passed(bridge, widgets, { metadata })
  const { primary } = await bridge.events.observe({ primary: { ref: widgets, namespace: 'default', name: 'deep' } })
  expect(primary).toMatchObject({ referenceOnly: true, resourceVersion: metadata.resourceVersion })
  expect(bridge.keysOf('w')).toEqual(['default.deep'])
  await kube.delete(`${path}/deep`)
})
