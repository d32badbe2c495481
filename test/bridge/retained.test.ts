import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject, ResourceRef } from '#contracts'
import { openEventStore } from '#events'
import { resourcePath } from '#kube'
import { RETAINED_FOR, retainedFor } from '#spec'
import { connectTo } from '../support/jetstream.ts'
import { configMaps, controlledBy, secrets, widgets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import { configMap, createReconciler, installWidgets, silent, startBridge, until, untilEqual } from './world.ts'

let servers: Servers
let owner: KubeObject

beforeAll(async () => {
  servers = await startServers()
  const { kube } = servers
  await installWidgets(kube)
  await createReconciler(kube, 'widget', { for: widgets, owns: [configMaps, secrets] })
  owner = await kube.create(resourcePath(widgets, 'default'), {
    apiVersion: 'example.com/v1',
    kind: 'Widget',
    metadata: { name: 'w' },
  })
})
afterAll(() => servers?.[Symbol.asyncDispose]())

const pathOf = (ref: ResourceRef, name?: string): string => resourcePath(ref, 'default', name)

it.each([configMaps, secrets])('a retained object runs the one it is retained for: of $kind', async (ref) => {
  const { kube, nats } = servers
  const annotations = { [RETAINED_FOR]: retainedFor(owner) }
  await using bridge = await startBridge(kube, nats.url, { prefix: `retained-${ref.resource}` })
  await untilEqual(kube, bridge.events, ref)
  await until(async () => bridge.keysOf('widget').includes('default.w'), { what: 'the widget is queued at first' })
  const hears = async (what: string, act: () => Promise<unknown>) => {
    bridge.enqueued.length = 0
    await act()
    await until(async () => bridge.keysOf('widget').includes('default.w'), { what: `it runs when ${what}` })
  }
  await hears('the object appears', () => kube.create(pathOf(ref), { metadata: { name: 'r', annotations } }))
  await hears('it changes', () => kube.patch(pathOf(ref, 'r'), { metadata: { labels: { a: 'b' } } }, 'merge'))
  const { owned } = await bridge.events.observe({
    primary: { ref: widgets, namespace: 'default', name: 'w' },
    owned: [ref],
  })
  expect(owned[0]?.map(({ key }) => key.name)).toEqual(['r'])
  await hears('it is retained no more', () =>
    kube.patch(pathOf(ref, 'r'), { metadata: { annotations: { [RETAINED_FOR]: null } } }, 'merge'),
  )
  await hears('it is retained again', () => kube.patch(pathOf(ref, 'r'), { metadata: { annotations } }, 'merge'))
  await hears('it goes', () => kube.delete(pathOf(ref, 'r')))
})

it('a retained object that goes while nobody watches is missed by the list: its owner runs', async () => {
  const { kube, nats } = servers
  const prefix = 'retained-list'
  const annotations = { [RETAINED_FOR]: retainedFor(owner) }
  await kube.create(pathOf(secrets), { metadata: { name: 'l', annotations } })
  {
    await using bridge = await startBridge(kube, nats.url, { prefix })
    await untilEqual(kube, bridge.events, secrets)
    await Promise.all(['secrets.v1', 'widgets.v1.example.com'].map((resource) => bridge.synced(resource)))
  }
  await forgetCursors(nats.url, prefix, secrets)
  await kube.delete(pathOf(secrets, 'l'))
  await using bridge = await startBridge(kube, nats.url, { prefix })
  await until(async () => bridge.relists.some(({ resource, deleted }) => resource === 'secrets.v1' && deleted === 1), {
    what: 'the list misses it',
  })
  await until(async () => bridge.keysOf('widget').includes('default.w'), { what: 'the widget is queued' })
})

/** Deletes the cursors of a bridge that has ended. A running bridge would write them again. */
async function forgetCursors(url: string, prefix: string, { resource }: ResourceRef): Promise<void> {
  const js = await connectTo(url)
  const events = await openEventStore(js, { prefix, cluster: 'test', log: silent })
  for await (const { ref, sequence } of events.cursors())
    if (ref.resource === resource) await events.removeCursor(sequence)
  await js.close()
}

it('a list removes the copy that a dead writer has left under another owner, of an object that is there, gone, or deleted since', async () => {
  const { kube, nats } = servers
  const prefix = 'left'
  await using js = await connectTo(nats.url)
  const openOne = () => openEventStore(js, { prefix, cluster: 'test', log: silent })
  const store = await openOne()
  const at = (object: KubeObject, resourceVersion: number): KubeObject => ({
    ...object,
    metadata: { ...object.metadata, resourceVersion: String(resourceVersion) },
  })
  const there = await kube.create<KubeObject>(
    pathOf(configMaps),
    configMap('there', 'one', controlledBy('Widget', 'w')),
  )
  const gone = configMap('gone', 'one', { uid: 'u-gone' })
  const ended = configMap('ended', 'one', { uid: 'u-ended' })
  for (const [object, version] of [
    [there, Number(there.metadata.resourceVersion)],
    [gone, 6],
    [ended, 6],
  ] as const) {
    const put = async (name: string, verb: 'added' | 'deleted', one: KubeObject) =>
      (await openOne()).put(configMaps, verb, one, { owner: { resource: 'widgets', name } })
    // A writer that takes an object for new reads nothing.
    await put('w', 'added', at(object, version))
    await put('between', 'added', at(object, version - 1))
    if (object === ended) await put('w', 'deleted', at(object, version + 1))
  }
  const copies = async () => {
    const found: string[] = []
    for await (const { key, owner: by, deleted } of store.identities(configMaps))
      if (!deleted && key.namespace === 'default') found.push(`${key.name} of ${by?.name}`)
    return found.sort()
  }
  expect(await copies()).toEqual(['ended of between', 'gone of between', 'gone of w', 'there of between', 'there of w'])
  await using bridge = await startBridge(kube, nats.url, { prefix })
  await bridge.synced('configmaps.v1')
  expect(await copies()).toEqual(['there of w'])
  expect(bridge.keysOf('widget')).toContain('default.between')
})
