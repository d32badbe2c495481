import { describe, expect, it } from 'vitest'
import type { EventStore, Observed, ObserveQuery, StoredObject, View } from '#events'
import { randomFrom } from '../support/random.ts'
import { ATS, object, ownedBy, PODS, type Store, until, useStores } from './objects.ts'

const { fresh, open } = useStores()
const PRIMARY = { ref: ATS, namespace: 'ns', name: 'a' }
const QUERY: ObserveQuery = { primary: PRIMARY, owned: [PODS] }

const shown = (stored: StoredObject) => `${stored.key.name}@${stored.resourceVersion} ${JSON.stringify(stored.object)}`
const told = (observed: Observed | undefined) =>
  observed && {
    primary: observed.primary && shown(observed.primary),
    owned: observed.owned.map((all) => all.map(shown)),
  }

async function viewOf(store: EventStore, query: ObserveQuery = QUERY): Promise<View> {
  const { view } = await store.observe({ ...query, withView: true })
  if (view === undefined) throw new Error('there is no view')
  return view
}

/** Messages that a connection sends meanwhile. */
async function sent({ js }: Store, act: () => unknown): Promise<number> {
  await js.flush()
  const before = js.nc.stats().outMsgs
  await act()
  await js.flush()
  return js.nc.stats().outMsgs - before
}

describe('a view of an object and what it owns', () => {
  it('shows without a message what a read would show, after each put of its process', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    const view = await viewOf(store)
    const steps: (() => Promise<unknown>)[] = [
      () => store.put(PODS, 'added', object('p', 2), ownedBy('a')),
      () => store.put(ATS, 'modified', object('a', 3)),
      () => store.put(PODS, 'added', object('q', 4), ownedBy('a')),
      () => store.put(PODS, 'added', object('r', 5), ownedBy('b')),
      () => store.put(PODS, 'modified', object('p', 6), ownedBy('a')),
      () => store.put(PODS, 'deleted', object('q', 7), ownedBy('a')),
      () => store.put(PODS, 'added', object('q', 9, { uid: 'another' }), ownedBy('a')),
      () => store.put(PODS, 'modified', object('p', 6), ownedBy('a')),
      () => store.put(ATS, 'deleted', object('a', 10)),
    ]
    for (const step of steps) {
      await step()
      expect(await sent(store, () => view.observed())).toBe(0)
      expect(told(view.observed())).toEqual(told(await store.observe(QUERY)))
    }
  })

  it('shows all that is put while EVENTS is read for it', async () => {
    const random = randomFrom(7)
    for (let round = 0; round < 40; round++) {
      await using store = await open(fresh())
      await store.put(ATS, 'added', object('a', 1))
      const puts = ['p', 'q', 'r'].map(async (name, index) => {
        for (let wait = random() * 12; wait > 1; wait--) await Promise.resolve()
        await store.put(PODS, 'added', object(name, 2 + index), ownedBy('a'))
      })
      const [view] = await Promise.all([viewOf(store), ...puts])
      expect(told(view.observed())).toEqual(told(await store.observe(QUERY)))
    }
  })

  it('is right or ends where a put meets what another process has stored', async () => {
    const options = fresh()
    await using store = await open(options)
    await using other = await open(options)
    await store.put(ATS, 'added', object('a', 1))
    const puts = [
      { verb: 'modified', after: 5, ends: true },
      { verb: 'modified', after: 3, ends: true },
      { verb: 'modified', after: 7, ends: false },
      { verb: 'deleted', after: 5, ends: false },
    ] as const
    for (const [round, { verb, after, ends }] of puts.entries()) {
      const base = 10 * (round + 1)
      await store.put(ATS, 'added', object('a', base))
      const view = await viewOf(store)
      await other.put(ATS, 'modified', object('a', base + 5))
      expect(view.observed()?.primary?.resourceVersion).toBe(String(base))
      await store.put(ATS, verb, object('a', base + after))
      expect(told(view.observed())).toEqual(ends ? undefined : told(await store.observe(QUERY)))
    }
  })

  it('ends when an object moves to it, and when one moves away from it', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    await store.put(PODS, 'added', object('p', 2), ownedBy('b'))
    const [to, away] = [await viewOf(store), await viewOf(store, { ...QUERY, primary: { ...PRIMARY, name: 'b' } })]
    expect(away.observed()?.owned[0]).toHaveLength(1)
    await store.put(PODS, 'modified', object('p', 3), ownedBy('a'))
    expect([to.observed(), away.observed()]).toEqual([undefined, undefined])
    const after = await store.observe({ ...QUERY, withView: true })
    expect(after.owned[0]).toHaveLength(1)
  })

  it('ends when its Reconciler is stored, when the connection drops, and when it is closed', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    await store.put(ATS, 'added', object('reconciler', 2))
    const of = { ...PRIMARY, name: 'reconciler' }
    const news = { of, known: (await store.observe({ primary: of })).primary! }
    const view = await viewOf(store, { ...QUERY, news })
    await store.put(ATS, 'modified', object('reconciler', 2))
    expect(view.observed()).toBeDefined()
    await store.put(ATS, 'modified', object('reconciler', 3))
    expect(view.observed()).toBeUndefined()
    const views = [await viewOf(store), await viewOf(store), await viewOf(store)]
    views[0]?.close()
    expect(views.map((one) => one.observed() !== undefined)).toEqual([false, true, true])
    store.endViews()
    expect(views.map((one) => one.observed() !== undefined)).toEqual([false, false, false])
    const last = await viewOf(store)
    await store.js.nc.reconnect()
    await until(() => expect(last.observed()).toBeUndefined())
  })

  it('is not there for what is related', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    const related = [{ ref: PODS, namespace: 'ns' }]
    expect((await store.observe({ primary: PRIMARY, related, withView: true })).view).toBeUndefined()
  })

  it('counts what it gives against the limit of the run', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    await store.put(PODS, 'added', object('p', 2), ownedBy('a'))
    const noted: number[] = []
    const allowance = { demand: () => undefined, note: (_: string, bytes: number) => void noted.push(bytes) }
    await store.observe({ ...QUERY, allowance })
    const read = noted.splice(0)
    expect(read).toHaveLength(2)
    const view = await viewOf(store)
    view.observed(allowance)
    expect(noted).toEqual(read)
  })
})
