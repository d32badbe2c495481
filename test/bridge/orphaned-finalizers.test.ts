import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { createOrphanedKeySweeper, type OrphanStatus } from '#bridge'
import type { DeadMessage, EventStore } from '#events'
import { isNotFound, type KubeClient, resourcePath } from '#kube'
import { finalizerOf, RECONCILERS } from '#spec'
import { FINALIZED } from '../../bridge/orphaned-finalizers.ts'
import { type DeployedNats, startDeployedNats } from '../support/deployed-nats.ts'
import { configMaps } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  configMapPath,
  createReconciler,
  grant,
  installWidgets,
  removeReconcilers,
  removeWidgets,
  restrictedClient,
  revoke,
  silent,
  startBridge,
  until,
} from './world.ts'

const NAME = 'maps'
const FINALIZER = finalizerOf(NAME)
const SOON = { everyMs: 50, keepMs: 200 }

let servers: Servers
let kube: KubeClient
let number = 0
beforeAll(async () => {
  servers = await startServers()
  ;({ kube } = servers)
})
afterAll(() => servers?.[Symbol.asyncDispose]())

type Scene = Awaited<ReturnType<typeof start>>
const start = (options: Partial<Parameters<typeof startBridge>[2]> = {}, client = kube) =>
  startBridge(client, servers.nats.url, { prefix: `o${number}`, orphans: SOON, ...options })

beforeEach(async () => {
  number++
  await removeReconcilers(kube)
  for (const name of ['held', 'other']) await release(name)
})

const hold = (name: string) => kube.create(configMapPath(), configMap(name, 'x', { finalizers: [FINALIZER] }))

/** Takes the finalizer away, and the object. */
async function release(name: string): Promise<void> {
  try {
    await kube.patch(configMapPath(name), { metadata: { finalizers: null } }, 'merge')
    await kube.delete(configMapPath(name))
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
}

const create = (spec = {}) => createReconciler(kube, NAME, { for: configMaps, finalize: true, ...spec })
const remove = () => kube.delete(resourcePath(RECONCILERS, undefined, NAME))

const recorded = (events: EventStore) =>
  until(async () => (await events.cursor(FINALIZED, NAME)) !== undefined, { what: 'what it finalizes is recorded' })
const forgotten = (events: EventStore) =>
  until(async () => (await events.cursor(FINALIZED, NAME)) === undefined, { what: 'it is forgotten' })

const reports = ({ bridge }: Scene, wanted: Partial<OrphanStatus>[]) =>
  until(() => expect(bridge.status().orphans).toMatchObject(wanted), { what: JSON.stringify(wanted) })

const WAITS = { reconciler: NAME, resource: 'configmaps.v1', holders: 1, waiting: 1 }

/** A Reconciler that was served, and then deleted. */
async function served(scene: Scene, spec = {}): Promise<void> {
  await create(spec)
  await scene.synced('configmaps.v1')
  await recorded(scene.events)
}

it('an object that is deleted after its Reconciler is reported and queued, until somebody takes the finalizer away', async () => {
  await using scene = await start()
  await hold('held')
  await served(scene)
  await remove()
  await reports(scene, [{ ...WAITS, waiting: 0 }])
  await kube.delete(configMapPath('held'))
  await reports(scene, [WAITS])
  const [entry] = await scene.queue.find({ reconciler: NAME, key: 'default.held' })
  expect(entry).toMatchObject({ state: 'queued' })
  expect(scene.bridge.orphanedKeys.stateOf(NAME, 'default.held')).toBe('waits')
  // Soon after, it is forgotten.
  const stateOfHeld = () => scene.bridge.orphanedKeys.stateOf(NAME, 'default.held')
  await Promise.all([until(() => stateOfHeld() === 'released', { what: 'it is released' }), release('held')])
  await forgotten(scene.events)
  await reports(scene, [])
})

it('an object that was deleted before its Reconciler, or while no bridge ran, is reported as well', async () => {
  {
    await using scene = await start()
    for (const name of ['held', 'other']) await hold(name)
    await served(scene)
    await kube.delete(configMapPath('held'))
  }
  await remove()
  await kube.delete(configMapPath('other'))
  await using again = await start()
  await reports(again, [{ ...WAITS, holders: 2, waiting: 2 }])
})

it('nothing is reported when the Reconciler is created again, and each of its keys runs', async () => {
  await using scene = await start()
  await hold('held')
  await served(scene)
  await remove()
  await kube.delete(configMapPath('held'))
  await reports(scene, [WAITS])
  scene.enqueued.length = 0
  await create()
  await reports(scene, [])
  await until(() => scene.keysOf(NAME).includes('default.held'), { what: 'its key is queued' })
})

it('nothing is reported of a Reconciler that was renamed: another one has its finalizer', async () => {
  await using scene = await start()
  await hold('held')
  await served(scene)
  await createReconciler(kube, 'renamed', { for: configMaps, finalize: true, identity: NAME })
  await until(async () => (await scene.events.cursor(FINALIZED, 'renamed')) !== undefined, { what: 'it is recorded' })
  await remove()
  await forgotten(scene.events)
  expect(scene.bridge.status().orphans).toEqual([])
})

it('a Reconciler without objects is forgotten, and its primaries are swept as those of any other', async () => {
  await using scene = await start({ sweep: { staleMs: 300, everyMs: 50 } })
  await served(scene)
  await remove()
  await forgotten(scene.events)
  await until(async () => (await scene.events.cursor(configMaps)) === undefined, { what: 'they are swept' })
})

it('what the bridge cannot see any more is given up: the rights, or the definition, are gone', async () => {
  await installWidgets(kube)
  await using restricted = await restrictedClient(kube, servers.cluster.kubeconfig)
  const verbs = ['get', 'list', 'watch', 'patch']
  await grant(kube, 'reconcilers', {
    apiGroups: [RECONCILERS.group],
    resources: ['reconcilers', 'reconcilers/status'],
    verbs,
  })
  await grant(kube, 'maps', { apiGroups: [''], resources: ['configmaps'], verbs })
  await grant(kube, 'widgets', { apiGroups: ['example.com'], resources: ['widgets'], verbs })
  await using scene = await start({}, restricted)
  await hold('held')
  await served(scene)
  const widgets = { group: 'example.com', version: 'v1', resource: 'widgets', kind: 'Widget' }
  await createReconciler(kube, 'widgets', { for: widgets, finalize: true })
  await scene.synced('widgets.v1.example.com')
  await until(async () => (await scene.events.cursor(FINALIZED, 'widgets')) !== undefined, { what: 'it is recorded' })
  await revoke(kube, 'maps')
  await removeReconcilers(kube)
  await removeWidgets(kube)
  await forgotten(scene.events)
  await until(async () => (await scene.events.cursor(FINALIZED, 'widgets')) === undefined, { what: 'it is given up' })
  await reports(scene, [])
})

it('a key that waits for such a finalizer is not dead-lettered, and goes without a letter when it waits no more', async () => {
  await using scene = await start({ orphans: { everyMs: 50, keepMs: 60_000 } })
  await hold('held')
  await served(scene)
  await scene.queue.enqueue(NAME, 'default.nobody')
  await remove()
  await kube.delete(configMapPath('held'))
  await reports(scene, [WAITS])
  const letters: string[] = []
  const deadLetter = async ({ subject }: DeadMessage) => void letters.push(subject)
  const stop = new AbortController()
  const orphans = scene.bridge.orphanedKeys
  const sweeper = createOrphanedKeySweeper({
    kube,
    queue: scene.queue,
    deadLetter,
    orphans,
    log: silent,
    absentMs: 0,
    everyMs: 50,
  })
  const sweeping = sweeper.run(stop.signal, 0)
  const keys = async () => {
    const entries = await Array.fromAsync(scene.queue.list({ reconciler: NAME }))
    return [...new Set(entries.map(({ key }) => key))].join()
  }
  await until(async () => (await keys()) === 'default.held', { what: 'all others are dead-lettered' })
  await release('held')
  await until(async () => (await keys()) === '', { what: 'it goes, too' })
  expect(letters).toContainEqual(expect.stringContaining('default.nobody'))
  expect(letters).not.toContainEqual(expect.stringContaining('default.held'))
  expect(await scene.queue.reconcilers()).toContain(NAME)
  stop.abort()
  await sweeping
})

it('all of this needs no other rights in NATS than those that a bridge is deployed with', async () => {
  await using deployed: DeployedNats & AsyncDisposable = await startDeployedNats()
  await using scene = await start({ prefix: '', connect: () => deployed.connect('fairlead-bridge', 'test') })
  await hold('held')
  await served(scene)
  await remove()
  await kube.delete(configMapPath('held'))
  await reports(scene, [WAITS])
  await release('held')
  await forgotten(scene.events)
})
