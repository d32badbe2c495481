import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { resourcePath } from '#kube'
import { EventRecorder } from '../../dispatch/apply/event-recorder.ts'
import { Gate, PRIORITY } from '../../dispatch/gate.ts'
import { silent, startFixture } from './fixture.ts'

const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
const WAITING = 1000
const AT_ONCE = 4

let fixture: Awaited<ReturnType<typeof startFixture>>
beforeAll(async () => {
  fixture = await startFixture()
  for (const name of ['loud', 'quiet']) await fixture.kube.create('/api/v1/namespaces', { metadata: { name } })
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

const report = { type: 'Normal', reason: 'Told', message: 'told' } as const

/** An object in the namespace of its reconciler. */
const object = (namespace: string, name: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, namespace, uid: `uid-${name}` },
})

async function written(namespace: string): Promise<string[]> {
  const found: string[] = []
  for await (const { items } of fixture.kube.list(resourcePath(EVENTS, namespace)))
    for (const event of items) found.push((event['regarding'] as { name: string }).name)
  return found
}

it('keeps 1,000 Events of a reconciler waiting, drops its oldest beyond them, and serves others in turn', async () => {
  const gate = new Gate(1)
  const { promise: backlog, resolve: end } = Promise.withResolvers<void>()
  const busy = gate.run({ reconciler: 'loud', kind: PRIORITY.create }, () => backlog)
  const dropped: string[] = []
  const recorder = new EventRecorder({
    gate,
    instance: 'test',
    now: () => new Date(),
    dropped: (reconciler) => dropped.push(reconciler),
    log: silent,
  })
  const record = (reconciler: string, name: string) =>
    recorder.record(fixture.kube, reconciler, object(reconciler, name), report)
  for (let index = 0; index < AT_ONCE; index++) record('loud', `sending-${index}`)
  record('loud', 'oldest')
  for (let index = 0; index < WAITING; index++) record('loud', `waiting-${index}`)
  record('quiet', 'only')
  expect(dropped).toEqual(['loud'])
  end()
  await busy
  await recorder.flush()
  const posts = fixture.requests.filter(({ method, path }) => method === 'POST' && path.endsWith('/events'))
  expect(posts.findIndex(({ path }) => path.includes('/quiet/'))).toBeLessThan(2 * AT_ONCE)
  const loud = await written('loud')
  expect(loud).toHaveLength(WAITING + AT_ONCE)
  expect(loud).not.toContain('oldest')
})
