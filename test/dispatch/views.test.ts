import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject, RunInput } from '#contracts'
import { type EventStore, keyOf, openEventStore, type View } from '#events'
import { resourcePath } from '#kube'
import { ViewCache } from '../../dispatch/observe/observe.ts'
import { silent, startFixture, until, WIDGETS } from './fixture.ts'

let fixture: Awaited<ReturnType<typeof startFixture>>

beforeAll(async () => {
  fixture = await startFixture()
})
afterAll(() => fixture?.[Symbol.asyncDispose]())

const sizeOf = ({ object }: Pick<RunInput, 'object'>) => (object as KubeObject & { spec: { size?: number } }).spec.size

/** A scene whose function asks for another run after a second, and what its runs have read and seen. */
async function scene(name: string) {
  const reads: string[] = []
  const observe: EventStore['observe'] = async (query) => {
    const found = await fixture.events.observe(query)
    if (query.known === undefined || found.view !== query.known) reads.push(query.primary.name)
    return found
  }
  const found = await fixture.scene(name, { dispatcher: { events: { ...fixture.events, observe } } })
  const sizes: (number | undefined)[] = []
  const widget = await found.widget('w', (input) => {
    sizes.push(sizeOf(input))
    return sizes.length < 3 ? { requeueAfterSeconds: 1 } : {}
  })
  const resized = (size: number): KubeObject => ({ ...widget, spec: { size } })
  await until(() => expect(sizes).toHaveLength(1))
  await until(async () => expect(await found.queue.depth(name)).toMatchObject({ waiting: 1 }))
  return { found, reads, sizes, resized }
}

const later = (object: KubeObject, by: number): KubeObject => {
  const resourceVersion = String(Number(object.metadata.resourceVersion) + by)
  return { ...object, metadata: { ...object.metadata, resourceVersion } }
}

describe('a run of a timer that its process has set', () => {
  it('reads no object, and sees what the process has stored since', async () => {
    const { found, reads, sizes, resized } = await scene('views-timer')
    await fixture.events.put(WIDGETS, 'modified', later(resized(7), 1))
    // A process that is too busy to take its timer reads: then the run after it has to show it.
    await until(() => expect(sizes).toHaveLength(3))
    expect(sizes.slice(1)).toEqual([7, 7])
    expect(reads.length).toBeLessThan(3)
    await found.stop()
  })
})

it('a run of a timer does not decide on what EVENTS has overtaken, though the token of that change waits in a full low lane', async () => {
  const { stream } = fixture.events
  // The bridge, in another process.
  const bridge = await openEventStore(fixture.js, {
    prefix: stream.slice(0, -'_EVENTS'.length),
    cluster: 'test',
    log: silent,
  })
  const name = 'views-overtaken'
  const found = await fixture.scene(name, { spec: { concurrency: 4 } })
  const others = Array.from({ length: 12 }, (_, index) => `other-${index}`)
  for (const other of others) {
    await found.widget(other, () => ({}))
    await found.ended(other)
  }
  const end = Promise.withResolvers<void>()
  let held = 0
  for (const other of others)
    found.behave(other, async () => {
      held++
      await end.promise
      return {}
    })
  for (const other of others) await found.queue.enqueue(name, keyOf(name, other), { lane: 'low' })
  await until(() => held === 3)
  const sizes: (number | undefined)[] = []
  await found.widget('w', (input) => {
    sizes.push(sizeOf(input))
    return { requeueAfterSeconds: 2 }
  })
  const path = resourcePath(WIDGETS, name, 'w')
  const waiting = async () => (await found.queue.depth(name)).waiting === 1
  let size = 0
  const isOvertaken = async () => {
    const runs = sizes.length
    if (!(await waiting())) return false
    await bridge.put(WIDGETS, 'modified', await fixture.kube.patch(path, { spec: { size: ++size } }, 'merge'))
    await found.queue.enqueue(name, keyOf(name, 'w'), { lane: 'low' })
    return sizes.length === runs && (await waiting())
  }
  await until(isOvertaken)
  const runs = sizes.length
  await until(() => sizes.length > runs)
  expect(sizes[runs]).toBe(size)
  // The token is still there.
  expect((await found.queue.depth(name)).queued).toBe(others.length - 3 + 1)
  end.resolve()
  await found.stop()
})

describe('a run that a token has caused', () => {
  it('reads: another process may have stored what it is about', async () => {
    const { found, reads, sizes } = await scene('views-token')
    const before = reads.length
    await found.enqueue('w')
    await until(() => expect(sizes.length).toBeGreaterThan(1))
    expect(reads.length).toBeGreaterThan(before)
    await found.stop()
  })
})

describe('the view of a key that waits', () => {
  const viewOf = (bytes = 100) => {
    const view = { bytes, isOpen: true, observed: () => undefined, close: () => void (view.isOpen = false) }
    return view satisfies View & { isOpen: boolean }
  }
  const soon = { dueAt: 2000, now: 1000 }

  it('is given once, and only to the run that follows the one that has seen it', () => {
    const kept = new ViewCache()
    const [mine, old, large, far] = [viewOf(), viewOf(), viewOf(100_000), viewOf()]
    kept.add('n.a', 'run-1', mine, soon)
    expect(kept.take('n.a', 'run-1')).toBe(mine)
    expect(kept.take('n.a', 'run-1')).toBeUndefined()
    kept.add('n.b', 'run-2', old, soon)
    expect(kept.take('n.b', 'another')).toBeUndefined()
    expect(kept.take('n.b', 'run-2')).toBeUndefined()
    kept.add('n.c', 'run-3', large, soon)
    kept.add('n.d', 'run-4', far, { dueAt: 10_000_000, now: 1000 })
    expect(kept.take('n.c', 'run-3') ?? kept.take('n.d', 'run-4')).toBeUndefined()
    expect([mine, old, large, far].map(({ isOpen }) => isOpen)).toEqual([true, false, false, false])
  })

  it('is one of 500: further keys read, until timers of others are over', () => {
    const kept = new ViewCache()
    const views = Array.from({ length: 502 }, () => viewOf())
    for (const [index, view] of views.slice(0, 501).entries()) kept.add(`n.${index}`, 'run', view, soon)
    expect(views.slice(0, 501).filter(({ isOpen }) => isOpen)).toHaveLength(500)
    kept.add('n.501', 'run', views[501]!, { dueAt: 9000, now: 3000 })
    expect(views.filter(({ isOpen }) => isOpen)).toEqual([views[501]])
    kept.clear()
    expect(views.filter(({ isOpen }) => isOpen)).toEqual([])
  })
})
