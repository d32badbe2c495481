import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createKubeClient } from '#kube'
import { json, startScriptedServer } from '../kube/scripted-server.ts'
import { startTestNats } from '../support/servers.ts'
import { reconcilerObject } from './objects.ts'
import { end, hold, line } from './scripted-api.ts'
import { startBridge, until } from './world.ts'

const RESOURCES = 200
const NAMESPACES = Array.from({ length: 50 }, (_, index) => `ns-${index}`)
/** A Reconciler may own 64 kinds. */
const OWNED = 50
const LISTS_AT_ONCE = 8

const thing = (index: number) => ({
  group: 'many.dev',
  version: 'v1',
  resource: `thing${index}s`,
  kind: `Thing${index}`,
})

let nats: Awaited<ReturnType<typeof startTestNats>>
beforeAll(async () => {
  nats = await startTestNats()
})
afterAll(() => nats?.stop())

it('asks for 200 resources in 50 namespaces each with a list and a watch per resource, eight lists at once', async () => {
  const things = Array.from({ length: RESOURCES }, (_, index) => thing(index))
  const reconcilers = Array.from({ length: RESOURCES / OWNED }, (_, index) => {
    const [first = thing(0), ...owns] = things.slice(index * OWNED, (index + 1) * OWNED)
    const { metadata, ...rest } = reconcilerObject(`r${index}`, { for: { ...first, namespaces: NAMESPACES }, owns })
    return line('ADDED', { ...rest, metadata: { ...metadata, uid: `r${index}`, resourceVersion: '1' } })
  })
  let open = 0
  let mostOpen = 0
  await using server = await startScriptedServer(async ({ url }, response) => {
    const { pathname, searchParams } = new URL(url ?? '', 'https://x')
    if (!searchParams.has('watch')) return json(response, 200, { resources: [] })
    if (!searchParams.has('sendInitialEvents')) return hold(response)
    const isReconcilers = pathname.endsWith('/reconcilers')
    mostOpen = Math.max(mostOpen, isReconcilers ? 0 : ++open)
    await sleep(20)
    if (!isReconcilers) open--
    return response.write((isReconcilers ? reconcilers.join('') : '') + end(10))
  })
  await using kube = createKubeClient({ ...server.access, userAgent: 'test' })
  await using bridge = await startBridge(kube, nats.url, { prefix: 'many' })
  const isWatching = ({ phase, synced }: { phase: string; synced: boolean }) => phase === 'watching' && synced
  const asked = () => server.requests.map(({ url }) => new URL(url ?? '', 'https://x'))
  const ofThings = () => asked().filter(({ pathname }) => pathname.includes('/thing'))
  await until('all are watched', async () => {
    const { resources } = bridge.bridge.status()
    return resources.length === RESOURCES + 1 && resources.every(isWatching) && ofThings().length >= 2 * RESOURCES
  })
  expect(new Set(ofThings().map(({ pathname }) => pathname)).size).toBe(RESOURCES)
  expect(ofThings()).toHaveLength(2 * RESOURCES)
  // How often their conditions are written is a matter of time.
  const others = asked().filter(({ pathname }) => !pathname.includes('/thing') && !pathname.endsWith('/status'))
  expect(others).toHaveLength(2)
  expect(mostOpen).toBeLessThanOrEqual(LISTS_AT_ONCE)
})
