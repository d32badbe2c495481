import { afterAll, beforeAll, expect, it } from 'vitest'
import { resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { configMaps, widgets } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import { createReconciler, installWidgets, startBridge, until, untilCondition } from './world.ts'

let servers: Servers
beforeAll(async () => {
  servers = await startServers()
  await installWidgets(servers.kube)
})
afterAll(() => servers?.[Symbol.asyncDispose]())

it('an overlap is a condition of both Reconcilers until one of them is gone', async () => {
  const { kube, nats } = servers
  for (const name of ['one', 'other']) await createReconciler(kube, name, { for: widgets, owns: [configMaps] })
  await using _ = await startBridge(kube, nats.url, { prefix: 'overlap' })
  const typesOf = async (name: string) => {
    const { status } = await kube.get(resourcePath(RECONCILERS, undefined, name))
    return ((status ?? {}) as { conditions?: { type: string }[] }).conditions?.map(({ type }) => type) ?? []
  }
  for (const name of ['one', 'other']) {
    await untilCondition(kube, name, 'Watching')
    expect((await typesOf(name)).sort()).toEqual(['Overlapping', 'Synced'])
  }
  await kube.delete(resourcePath(RECONCILERS, undefined, 'other'))
  await until(async () => !(await typesOf('one')).includes('Overlapping'), { what: 'one overlaps no more' })
  expect(await typesOf('one')).toEqual(['Synced'])
})
