import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject, ResourceRef } from '#contracts'
import { type EventStore, keyOf, openEventStore } from '#events'
import type { Nats } from '#lab'
import { RECONCILERS } from '#spec'
import { DONE, FN, freshPrefix, openTestQueue, type TestQueue, until } from '../queue/support.ts'
import { command } from '../support/command.ts'
import { startTestNats } from '../support/servers.ts'
import { silent as log } from '../support/silent.ts'

const WIDGETS: ResourceRef = { group: 'test.fairlead.dev', version: 'v1', resource: 'widgets' }
const prefix = freshPrefix()

let nats: Nats & AsyncDisposable
let test: TestQueue
let events: EventStore
const ran: string[] = []

beforeAll(async () => {
  nats = await startTestNats()
  test = await openTestQueue(nats.url, prefix)
  events = await openEventStore(test.js, { prefix, cluster: 'test', log })
  await put(RECONCILERS, 'Reconciler', FN, undefined, { for: { ...WIDGETS, kind: 'Widget' }, invoke: { pull: {} } })
  await put(WIDGETS, 'Widget', 'web', 'shop')
  await put(WIDGETS, 'Widget', 'whole')
  await test.queue.declare(FN)
})
afterAll(async () => {
  await test?.[Symbol.asyncDispose]()
  await nats?.[Symbol.asyncDispose]()
})

async function put(ref: ResourceRef, kind: string, name: string, namespace?: string, spec: object = {}): Promise<void> {
  const metadata = { name, ...(namespace && { namespace }), uid: `uid-${name}`, resourceVersion: '1' }
  const object: KubeObject = { apiVersion: `${ref.group}/${ref.version}`, kind, metadata, spec }
  await events.put(ref, 'added', object)
}

const run = (...args: string[]) =>
  command(['queue', 'run', FN, ...args], { NATS_URL: nats.url, FAIRLEAD_PREFIX: prefix })

describe('queue run', () => {
  it('refuses what is not there, and names where it is', async () => {
    const absent = await run('web', 'nothing')
    expect(absent.stdout).toBe('f web: no such object; there is shop/web\nf nothing: no such object\n')
    expect(absent.code).toBe(1)
    expect(await test.queue.depth(FN)).toMatchObject({ queued: 0 })
  })

  it('runs idle objects, in a namespace or in none', async () => {
    const worker = test.queue.serve({
      reconciler: FN,
      slots: 2,
      handler: async ({ key }) => {
        ran.push(key)
        return DONE
      },
    })
    expect(await run('shop/web', 'whole')).toMatchObject({ code: 0, stdout: 'f shop/web: queued\nf whole: queued\n' })
    await until(() => expect(ran.toSorted()).toEqual([keyOf(undefined, 'whole'), keyOf('shop', 'web')].toSorted()))
    await worker.drain(1000)
  })

  it('does not wait for a backoff, and keeps its count of failures', async () => {
    const attempts: number[] = []
    const worker = test.queue.serve({
      reconciler: FN,
      slots: 1,
      handler: async ({ attempt }) => {
        attempts.push(attempt)
        return { kind: 'error', message: 'no', retryAt: new Date(Date.now() + 3_600_000) }
      },
    })
    await run('web', '-n', 'shop')
    await until(async () => expect(await test.queue.depth(FN)).toMatchObject({ waiting: 1, queued: 0, running: 0 }))
    const { code, stdout } = await run('web', '-n', 'shop', '-o', 'json')
    expect({ code, result: JSON.parse(stdout) as unknown }).toEqual({
      code: 0,
      result: [{ reconciler: FN, namespace: 'shop', name: 'web', result: 'queued' }],
    })
    await until(() => expect(attempts).toEqual([0, 1]))
    await worker.drain(1000)
  })

  it('says that a Reconciler is gone', async () => {
    const metadata = { name: FN, uid: `uid-${FN}`, resourceVersion: '2' }
    await events.put(RECONCILERS, 'deleted', { apiVersion: 'fairlead.dev/v1alpha1', kind: 'Reconciler', metadata })
    expect(await run('shop/web')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no Reconciler f any more'),
    })
  })
})

it('run without --dry-run names the command that runs an object for real', async () => {
  const { code, stderr } = await command(['run', 'at', 'late'])
  expect(stderr).toContain('fairlead queue run at NAMESPACE/late')
  expect(code).toBe(2)
})
