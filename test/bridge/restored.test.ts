import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { startTestCluster } from '../support/servers.ts'
import { configMaps } from './objects.ts'
import { type Servers, serversOn } from './servers-on.ts'
import { configMap, configMapPath, createReconciler, startBridge, until, untilEqual, writeConfigMap } from './world.ts'

let servers: Servers
beforeAll(async () => {
  servers = await serversOn(startTestCluster())
})
afterAll(() => servers?.[Symbol.asyncDispose]())

/** Changes the data of the API server while it is stopped. */
async function whileDown(act: (data: string) => Promise<void>): Promise<void> {
  const { cluster } = servers
  await cluster.processes.kill('kube-apiserver')
  await cluster.processes.kill('etcd')
  await act(join(cluster.dir, 'etcd'))
  await cluster.recover()
}

it('an API server that was restored from a backup is noticed and listed, and believed, though EVENTS has later versions', async () => {
  const { kube, cluster, nats } = servers
  const backup = join(cluster.dir, 'backup')
  const create = (name: string) => kube.create(configMapPath(), configMap(name, 'value'))
  await createReconciler(kube, 'maps', { for: { ...configMaps, namespaces: ['default'] } })
  for (const name of ['changed', 'recreated', 'deleted']) await create(name)
  await using bridge = await startBridge(kube, nats.url, { prefix: 'restored' })
  await bridge.synced('configmaps.v1')
  await whileDown((data) => cp(data, backup, { recursive: true }))

  await writeConfigMap(kube, 'changed', 'later')
  await kube.delete(configMapPath('recreated'))
  await create('recreated')
  await kube.delete(configMapPath('deleted'))
  await create('added')
  await untilEqual(kube, bridge.events, configMaps, 'default')
  // What is still to be queued for these changes is none of what the restored state leads to.
  await bridge.rested()
  bridge.enqueued.length = 0

  await whileDown(async (data) => {
    await rm(data, { recursive: true })
    await cp(backup, data, { recursive: true })
  })
  await untilEqual(kube, bridge.events, configMaps, 'default')
  const keys = ['default.added', 'default.changed', 'default.deleted', 'default.recreated']
  await until(async () => bridge.keysOf('maps').length === keys.length, { what: 'all are enqueued' })
  expect(bridge.keysOf('maps')).toEqual(keys)
})
