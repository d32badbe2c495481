import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it, vi } from 'vitest'
import type { EventStore, Selection, Verb } from '#events'
import { parseSelector, relatedSelection } from '#spec'
import { DeadLettering } from '../../streams/events/dead-letters.ts'
import { Indexes } from '../../streams/events/indexes.ts'
import { streamNames } from '../../streams/events/stream.ts'
import { objectFilter } from '../../streams/events/subjects.ts'
import { setBack, snapshot } from '../support/nats-stores.ts'
import { randomFrom } from '../support/random.ts'
import { startTestNats } from '../support/servers.ts'
import { silent } from '../support/silent.ts'
import { ATS, object, openStore, PODS, putPod, type Store, selected, selection, until, useStores } from './objects.ts'

const NS = 'ns'
const PRIMARY = { ref: ATS, namespace: NS, name: 'a' }

const { fresh, open } = useStores()

/** The same by a read of everything. */
async function selectedOfAll(store: EventStore, text: string): Promise<string[]> {
  const { related } = await store.observe({ primary: PRIMARY, related: [{ ref: PODS, namespace: NS }] })
  const matches = parseSelector(text)
  return related[0]!
    .filter(({ object: { metadata } }) => matches(metadata.labels ?? {}))
    .map(({ key, resourceVersion }) => `${key.name}@${resourceVersion}`)
}

async function inChunks(count: number, act: (at: number) => Promise<unknown>): Promise<void> {
  for (let at = 0; at < count; at += 500)
    await Promise.all(Array.from({ length: Math.min(500, count - at) }, (_, index) => act(at + index)))
}

interface Limits {
  log?: typeof silent
  capacityBytes?: () => number
  keptMs?: number
}

function indexesOf({ js }: Store, prefix: string, { log = silent, ...limits }: Limits = {}): Indexes {
  const names = streamNames(prefix)
  const deadLettering = new DeadLettering({
    js,
    names,
    isReferenceOnly: () => false,
    log: silent,
    deadLetter: undefined,
    now: () => new Date(),
  })
  return new Indexes({
    deps: { js, names, isReplicated: () => false, log, deadLettering },
    tombstoneSeconds: 3600,
    selected: () => undefined,
    cleared: () => undefined,
    ...limits,
  })
}

/** An index that is opened meanwhile is read only when it is asked, never in the background. */
async function withoutRefresh<T>(act: () => Promise<T>): Promise<T> {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  try {
    return await act()
  } finally {
    vi.useRealTimers()
  }
}

/** Messages and bytes that a connection receives meanwhile. */
async function received({ js }: Store, act: () => Promise<unknown>): Promise<{ messages: number; bytes: number }> {
  await js.flush()
  const before = js.nc.stats()
  await act()
  const after = js.nc.stats()
  return { messages: after.inMsgs - before.inMsgs, bytes: after.inBytes - before.inBytes }
}

describe('objects that a selection selects', () => {
  it('are given, as they are now, with what is selected and what is not any more', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    expect(await selected(store)).toEqual([])
    await putPod(store, 'added', 'p', 2, 'mine')
    await putPod(store, 'added', 'q', 3, 'other')
    expect(await selected(store)).toEqual(['p@2'])
    await putPod(store, 'modified', 'q', 4, 'mine')
    expect(await selected(store)).toEqual(['p@2', 'q@4'])
    await putPod(store, 'modified', 'p', 5, 'other')
    await putPod(store, 'modified', 'q', 6, 'mine')
    expect(await selected(store)).toEqual(['q@6'])
    expect(await selected(store, 'app=other')).toEqual(['p@5'])
    expect(await selected(store, '')).toEqual(['p@5', 'q@6'])
    await putPod(store, 'deleted', 'q', 7, 'mine')
    expect(await selected(store)).toEqual([])
  })

  it('cost nothing for what is not selected or was deleted: a run receives what it does in an empty namespace', async () => {
    await using empty = await open(fresh())
    await empty.put(ATS, 'added', object('a', 1))
    await putPod(empty, 'added', 'p', 2, 'mine')
    await withoutRefresh(() => selected(empty))
    const wanted = await received(empty, () => selected(empty))

    await using crowded = await open(fresh())
    await crowded.put(ATS, 'added', object('a', 1))
    await putPod(crowded, 'added', 'p', 2, 'mine')
    await inChunks(2000, (at) => putPod(crowded, 'added', `f${at}`, at + 3, 'other', { spec: 'x'.repeat(1000) }))
    await inChunks(1000, (at) => putPod(crowded, 'deleted', `f${at}`, at + 30_000, 'other'))
    await withoutRefresh(() => selected(crowded))
    const found = await received(crowded, () => selected(crowded))
    expect(found.messages).toBe(wanted.messages)
    expect(found.bytes).toBeLessThan(wanted.bytes + 64)
  })

  it('cost nothing for what others changed since the last run: the process has read it before the next run', async () => {
    const options = fresh()
    await using writer = await open(options)
    await using store = await open(options)
    const indexes = indexesOf(store, options.prefix)
    const mine = selection('app=mine')
    const read = () => indexes.upToDate(objectFilter({ ref: PODS, namespace: NS }), mine, undefined)
    await putPod(writer, 'added', 'p', 2, 'mine')
    const index = await read()
    await inChunks(3000, (at) => putPod(writer, 'added', `f${at}`, at + 3, 'other'))
    // No run has asked for it.
    await until(() => index.size === 3001)
    const found = await received(store, async () => expect((await read()).locate(mine)).toHaveLength(1))
    // One answer, and those to background reads of that time.
    expect(found.messages).toBeLessThan(100)
  })

  it('are kept up to date only as long as runs use them', async () => {
    const options = fresh()
    await using store = await open(options)
    await store.put(PODS, 'added', object('p', 1))
    const filter = objectFilter({ ref: PODS, namespace: NS })
    const read = (indexes: Indexes) => indexes.upToDate(filter, selection(''), undefined)
    const [used, unused] = [indexesOf(store, options.prefix), indexesOf(store, options.prefix, { keptMs: 0 })]
    const [kept, left] = [await read(used), await read(unused)]
    await until(async () => (await read(unused)) !== left)
    expect(await read(used)).toBe(kept)
  })

  it('are read once for all runs that ask at the same time', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    await putPod(store, 'added', 'p', 2, 'mine')
    await withoutRefresh(() => selected(store))
    const one = await received(store, () => selected(store))
    const many = await received(store, () => Promise.all(Array.from({ length: 50 }, () => selected(store))))
    expect(many.messages).toBeLessThanOrEqual(49 * (one.messages - 1) + one.messages + 2)
  })

  it('are indexed up to a limit: the index that was used least recently is dropped, and read again when needed', async () => {
    const options = fresh()
    await using store = await open(options)
    const places = ['a', 'b', 'c']
    for (const namespace of places) await store.put(PODS, 'added', object(`in-${namespace}`, 1, { namespace }))
    const dropped: unknown[] = []
    const log = { ...silent, warn: ({ filter }: { filter?: unknown }) => void dropped.push(filter) }
    const indexes = indexesOf(store, options.prefix, { log, capacityBytes: () => 10_000 })
    const filterOf = (namespace: string) => objectFilter({ ref: PODS, namespace })
    const read = (namespace: string) => indexes.upToDate(filterOf(namespace), selection(''), undefined)
    const [a, b] = [await read('a'), await read('b')]
    expect(await read('a')).toBe(a)
    await read('c')
    expect(dropped).toEqual([filterOf('b')])
    expect(await read('a')).toBe(a)
    const again = await read('b')
    expect([again === b, again.size]).toEqual([false, 1])
  })

  it('leave nothing in memory when their index is dropped: the limit counts every index that is there', async () => {
    const options = fresh()
    await using store = await open(options)
    // One index alone is beyond this limit, so that each index drops the one before.
    const indexes = indexesOf(store, options.prefix, { capacityBytes: () => 1 })
    const weak = async (resource: string) => {
      const ref = { ...PODS, resource }
      await store.put(ref, 'added', object('one', 1))
      const filter = objectFilter({ ref, namespace: NS })
      return new WeakRef(await indexes.upToDate(filter, selection(''), undefined))
    }
    const refs = [await weak('pods'), await weak('services'), await weak('configmaps')]
    setFlagsFromString('--expose-gc')
    const gc = runInNewContext('gc') as () => void
    const left = () => {
      gc()
      return refs.filter((ref) => ref.deref() !== undefined).length
    }
    await until(() => left() <= 1)
    indexes.clear()
    await until(() => left() === 0)
  })

  it('of a kind that has just become related are all there, and those of another selection too', async () => {
    const options = fresh()
    await using writer = await open(options)
    await using store = await open(options)
    await writer.put(ATS, 'added', object('a', 1))
    await inChunks(1500, (at) => putPod(writer, 'added', `p${at}`, at + 2, at % 3 === 0 ? 'mine' : 'other'))
    expect(await selected(store)).toHaveLength(500)
    expect(await selected(store, 'app=other')).toHaveLength(1000)
    expect(await selected(store, 'app!=mine')).toHaveLength(1000)
  })

  it('by their fields are read again once for each such selection, and from then on when they change', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    const inPhase = (phase: string): Selection => ({
      text: phase,
      byFields: true,
      matcher: () => (_, found) => found === undefined || found.spec === phase,
    })
    const found = async (one: Selection) => {
      const related = [{ ref: PODS, namespace: NS, selection: one }]
      return (await store.observe({ primary: PRIMARY, related })).related[0]!.map(({ key }) => key.name)
    }
    for (const name of ['p', 'q', 'r']) await putPod(store, 'added', name, 2, 'mine', { spec: 'Pending' })
    await putPod(store, 'added', 's', 3, 'mine', { spec: 'Running' })
    await withoutRefresh(async () => {
      expect(await found(inPhase('Running'))).toEqual(['s'])
      expect(await found(inPhase('Pending'))).toEqual(['p', 'q', 'r'])
    })
    await putPod(store, 'modified', 'p', 4, 'mine', { spec: 'Running' })
    const bytes = await received(store, async () => {
      expect(await found(inPhase('Running'))).toEqual(['s', 'p'])
      expect(await found(inPhase('Pending'))).toEqual(['q', 'r'])
    })
    expect(bytes.messages).toBeLessThanOrEqual(2 * 2 + 2 + 1)
  })

  it('by a name in their field are read again once, for whatever name, and each read has those with the name only', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    const named = relatedSelection({ ...PODS, kind: 'Pod', within: 'Namespace', naming: 'spec.nodeName' })
    const on = async (naming: string) => {
      const related = [{ ref: PODS, namespace: NS, selection: named, naming }]
      return (await store.observe({ primary: PRIMARY, related })).related[0]!.map(({ key }) => key.name)
    }
    const put = (verb: Verb, at: number, version: number, nodeName: string) =>
      putPod(store, verb, `p${at}`, version, 'mine', { spec: { nodeName } })
    expect(await selected(store, '')).toEqual([])
    await inChunks(200, (at) => put('added', at, at + 2, `n${at % 50}`))
    expect(await on('n7')).toEqual(['p7', 'p57', 'p107', 'p157'])
    await put('modified', 57, 300, 'n8')
    const bytes = await received(store, async () => {
      expect(await on('n7')).toEqual(['p7', 'p107', 'p157'])
      expect(await on('n8')).toEqual(['p8', 'p58', 'p108', 'p158', 'p57'])
      expect(await on('none')).toEqual([])
    })
    expect(bytes.messages).toBeLessThan(30)
  })

  it('without a namespace are found where the kind has none, and not asked for where it has', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('a', 1))
    const both = [
      { ref: PODS, namespace: NS, selection: selection('') },
      { ref: PODS, clusterScoped: true, selection: selection('') },
    ]
    const found = async () =>
      (await store.observe({ primary: PRIMARY, related: both })).related.map((list) => list.map(({ key }) => key.name))
    await store.put(PODS, 'added', object('node', 2, { namespace: undefined }))
    await withoutRefresh(async () => expect(await found()).toEqual([[], ['node']]))
    await store.put(PODS, 'deleted', object('node', 3, { namespace: undefined }))
    await store.put(PODS, 'added', object('pod', 4))
    expect(await found()).toEqual([['pod'], []])
    const sent = store.js.nc.stats().outMsgs
    await found()
    expect(store.js.nc.stats().outMsgs - sent).toBe(2)
  })

  it('are those that a read of everything gives, whatever is stored, moved, deleted and written late', async () => {
    const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31))
    const random = randomFrom(seed)
    const oneOf = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)]!
    const options = { ...fresh(), remember: 3 }
    await using a = await open(options)
    await using b = await open(options)
    await using late = await open(options)
    await a.put(ATS, 'added', object('a', 1))
    const names = ['p', 'q', 'r', 's']
    const texts = ['app=x', 'app in (x,y)', 'app', '']
    let version = 1
    for (let round = 0; round < 70; round++) {
      const writes = Array.from({ length: 1 + Math.floor(random() * 5) }, () => {
        const owner = oneOf([undefined, { resource: 'ats', name: 'a' }, { resource: 'ats', name: 'b' }])
        const isLate = random() < 0.3
        const name = oneOf(names)
        const verb = oneOf<Verb>(['added', 'modified', 'modified', 'deleted'])
        return putPod(
          oneOf([a, b]),
          verb,
          name,
          isLate ? Math.max(1, version - 3) : ++version,
          oneOf(['x', 'y', 'z']),
          {
            owner,
          },
        )
      })
      await Promise.all(writes)
      const asked = round % 10 === 0 ? [a, b, late] : [a, b]
      for (const store of asked)
        for (const text of texts)
          expect((await selected(store, text)).toSorted(), `SEED=${seed} round ${round} ${text}`).toEqual(
            (await selectedOfAll(store, text)).toSorted(),
          )
    }
  })
})

describe('when something is lost', () => {
  it('a deletion whose tombstone is gone is not missed by an index that was not used for so long', async () => {
    const options = { ...fresh(), tombstoneSeconds: 1 }
    await using writer = await open(options)
    await using store = await open(options)
    await writer.put(ATS, 'added', object('a', 1))
    await putPod(writer, 'added', 'p', 2, 'mine')
    await putPod(writer, 'added', 'q', 3, 'mine')
    expect(await selected(store)).toEqual(['p@2', 'q@3'])
    await putPod(writer, 'deleted', 'p', 4, 'mine')
    const { js, stream } = writer
    await until(async () => (await js.count(stream, `${options.prefix}.k8s._.v1.pods.ns._.p`)).count === 0)
    expect(await selected(store)).toEqual(['q@3'])
  })

  it('a deletion whose tombstone is gone is not missed when the background read comes late, as on a machine that slept', async () => {
    const options = { ...fresh(), tombstoneSeconds: 1 }
    await using store = await open(options)
    await using writer = await open(options)
    for (const name of ['p', 'q']) await putPod(writer, 'added', name, 2, 'mine')
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] })
    try {
      expect(await selected(store)).toEqual(['p@2', 'q@2'])
      await putPod(writer, 'deleted', 'p', 4, 'mine')
      const { js, stream } = writer
      await until(async () => (await js.count(stream, `${options.prefix}.k8s._.v1.pods.ns._.p`)).count === 0)
      await vi.advanceTimersToNextTimerAsync()
      for (let round = 0; round < 20; round++) await store.js.flush()
      expect(await selected(store)).toEqual(['q@2'])
    } finally {
      vi.useRealTimers()
    }
  })

  it('no match is stale and none is missing after the stream was set back', async () => {
    await using own = await startTestNats()
    await using store = await openStore(own.url)
    await store.put(ATS, 'added', object('a', 1))
    await putPod(store, 'added', 'kept', 2, 'mine')
    await snapshot(own)
    await putPod(store, 'added', 'lost', 3, 'mine')
    await putPod(store, 'modified', 'kept', 4, 'other')
    expect(await selected(store)).toEqual(['lost@3'])
    await setBack(own, store.js, [store.stream])
    await putPod(store, 'added', 'later', 5, 'mine')
    await putPod(store, 'added', 'latest', 6, 'mine')
    await putPod(store, 'added', 'last', 7, 'mine')
    expect(await selected(store)).toEqual(['kept@2', 'later@5', 'latest@6', 'last@7'])
  })
})
