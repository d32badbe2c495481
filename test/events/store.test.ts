import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Observed, Verb } from '#events'
import { DeclarationMismatchError } from '#nats'
import { ATS, collected, object, ownedBy, PODS, SECRETS, until, useStores } from './objects.ts'

const { fresh, open } = useStores()
const podNamed = (name: string, namespace = 'ns') => ({ primary: { ref: PODS, namespace, name } })
const podsOf = (name: string) => ({ primary: { ref: ATS, namespace: 'ns', name }, owned: [PODS] })

describe('storing versions', () => {
  it('never lets an older version replace a newer one', async () => {
    const options = fresh()
    await using a = await open(options)
    await using b = await open(options)
    await a.put(PODS, 'added', object('p', 9))
    const { sequence } = await b.put(PODS, 'modified', object('p', 10), { origin: 'at/ns.x/1' })
    await using c = await open(options)
    const newer = { outcome: 'newer', sequence, origin: 'at/ns.x/1', formerOwners: [] }
    for (const store of [b, c]) expect(await store.put(PODS, 'modified', object('p', 9))).toEqual(newer)
    expect(await a.put(PODS, 'modified', object('p', 8))).toMatchObject({ outcome: 'newer' })
    expect((await a.observe(podNamed('p'))).primary?.resourceVersion).toBe('10')
  })

  it('stores a version once that two writers bring at once', async () => {
    const options = fresh()
    await using a = await open(options)
    await using b = await open(options)
    for (let version = 1; version <= 20; version++) {
      const before = await a.js.lastSequence(a.stream)
      const results = await Promise.all([a, b].map((store) => store.put(PODS, 'modified', object('p', version))))
      expect(results.map(({ outcome }) => outcome).toSorted()).toEqual(['present', 'stored'])
      expect(new Set(results.map(({ sequence }) => sequence))).toEqual(new Set([before + 1]))
      expect(await a.js.lastSequence(a.stream)).toBe(before + 1)
    }
  })

  it('publishes a version once that two parts of one process bring at once', async () => {
    await using store = await open(fresh())
    const before = await store.js.lastSequence(store.stream)
    const put = (origin?: string) => store.put(PODS, 'modified', object('p', 5), { origin })
    const results = await Promise.all([put('at/ns.x/1'), put(), put()])
    expect(results.map(({ outcome }) => outcome)).toEqual(['stored', 'present', 'present'])
    expect(results.map(({ origin }) => origin)).toEqual(['at/ns.x/1', 'at/ns.x/1', 'at/ns.x/1'])
    expect(await store.js.lastSequence(store.stream)).toBe(before + 1)
  })

  it('says who wrote a version through, to writers, observers and followers', async () => {
    const options = fresh()
    await using a = await open(options)
    await using b = await open(options)
    await a.put(PODS, 'added', object('p', 5), { origin: 'at/ns.x y/é', traceparent: '00-a-b-01' })
    expect(await b.put(PODS, 'added', object('p', 5))).toMatchObject({ outcome: 'present', origin: 'at/ns.x y/é' })
    expect((await b.observe(podNamed('p'))).primary).toMatchObject({ origin: 'at/ns.x y/é', traceparent: '00-a-b-01' })
    for await (const event of b.follow({ ref: PODS }, new AbortController().signal)) {
      expect(event).toMatchObject({ origin: 'at/ns.x y/é', verb: 'added' })
      break
    }
    expect(await a.put(PODS, 'modified', object('p', 6))).toMatchObject({ outcome: 'stored', origin: undefined })
  })

  it('ends with the latest version under its owner alone, however writers interleave and whatever they miss', async () => {
    const owners = ['_', 'a', 'b']
    const step = fc.record({ owner: fc.constantFrom(...owners), ends: fc.boolean() })
    const history = fc.array(step, { minLength: 1, maxLength: 6 })
    const options = fresh()
    await using a = await open(options)
    await using b = await open(options)
    await using forgetful = await open({ ...options, remember: 1 })
    let run = 0
    await fc.assert(
      fc.asyncProperty(history, fc.infiniteStream(fc.nat({ max: 3 })), async (steps, delays) => {
        const namespace = `n${run++}`
        const replay = async (store: typeof a) => {
          let born = false
          for (const [at, { owner, ends }] of steps.entries()) {
            const verb: Verb = ends ? 'deleted' : born ? 'modified' : 'added'
            born = !ends
            const isMissed = verb === 'modified' && at + 1 < steps.length && delays.next().value === 0
            if (isMissed) continue
            for (let turns = delays.next().value ?? 0; turns > 0; turns--) await store.js.flush()
            await store.put(PODS, verb, object('p', at + 1, { namespace }), owner === '_' ? {} : ownedBy(owner))
          }
        }
        await Promise.all([a, b, forgetful].map(replay))
        const last = steps.at(-1)
        const versionUnder = async (owner: string) => {
          const { owned } = await a.observe({ primary: { ref: ATS, namespace, name: owner }, owned: [PODS] })
          return owned[0]?.map(({ resourceVersion }) => resourceVersion)
        }
        const { primary } = await a.observe(podNamed('p', namespace))
        expect(primary?.resourceVersion).toBe(last?.ends ? undefined : String(steps.length))
        for (const owner of ['a', 'b'])
          expect(await versionUnder(owner)).toEqual(!last?.ends && last?.owner === owner ? [`${steps.length}`] : [])
      }),
      { numRuns: 60 },
    )
  })

  it('keeps every object apart, whatever it is called', async () => {
    await using store = await open(fresh())
    const names = ['a', 'a.b', 'a-b', 'system:node', 'A', '*', '>', '_', 'ünï', 'a b']
    const scopes = ['ns', 'n.s', undefined]
    const all = scopes.flatMap((namespace) => names.map((name) => ({ namespace, name })))
    await Promise.all(
      all.map(({ name, namespace }, at) => store.put(PODS, 'added', object(name, at + 1, { namespace }))),
    )
    for (const [at, { name, namespace }] of all.entries()) {
      const { primary } = await store.observe({ primary: { ref: PODS, namespace, name } })
      expect(primary).toMatchObject({ resourceVersion: String(at + 1), key: { namespace, name } })
    }
    expect(await collected(store.identities(PODS))).toHaveLength(all.length)
    expect(await collected(store.identities(PODS, 'n.s'))).toHaveLength(names.length)
  })
})

describe('deletions', () => {
  it('are found until their time is over, and then gone', async () => {
    const opened = async (tombstoneSeconds: number) => {
      const store = await open({ ...fresh(), tombstoneSeconds })
      await store.put(PODS, 'added', object('p', 5))
      expect(await store.put(PODS, 'deleted', object('p', 6))).toMatchObject({ outcome: 'stored' })
      expect((await store.observe(podNamed('p'))).primary).toBeUndefined()
      return store
    }
    await using during = await opened(3600)
    expect(await collected(during.identities(PODS))).toMatchObject([{ deleted: true, resourceVersion: '6' }])
    expect(await during.put(PODS, 'added', object('p', 5))).toMatchObject({ outcome: 'newer' })
    await using after = await opened(1)
    await until(async () => (await collected(after.identities(PODS))).length === 0)
    expect(await after.put(PODS, 'added', object('p', 7))).toMatchObject({ outcome: 'stored' })
  })

  it('that a list has found replace the version last seen, and no newer one', async () => {
    const options = fresh()
    await using a = await open(options)
    await using b = await open(options)
    await a.put(PODS, 'added', object('gone', 5), ownedBy('x'))
    await a.put(PODS, 'added', object('back', 6))
    const lastSeen = await collected(b.identities(PODS))
    await a.put(PODS, 'modified', object('back', 7))
    const outcomes = []
    for (const { object: last, owner } of lastSeen)
      outcomes.push((await b.put(PODS, 'deleted', last, { owner })).outcome)
    expect(outcomes).toEqual(['stored', 'newer'])
    expect((await a.observe(podsOf('x'))).owned).toEqual([[]])
    expect((await a.observe(podNamed('back'))).primary?.resourceVersion).toBe('7')
  })
})

describe('owners', () => {
  it('do not hide an object from whoever reads it by its name', async () => {
    await using store = await open(fresh())
    await store.put(PODS, 'added', object('free', 1))
    await store.put(PODS, 'added', object('held', 2), ownedBy('x'))
    for (const name of ['free', 'held']) expect((await store.observe(podNamed(name))).primary?.key.name).toBe(name)
    expect((await store.observe(podsOf('x'))).owned[0]?.map(({ key }) => key.name)).toEqual(['held'])
  })

  it('lose an object that another one got, and are named to whoever brings that version', async () => {
    const options = fresh()
    await using a = await open(options)
    await using b = await open(options)
    const formerOwners = [{ resource: 'ats', name: 'x' }]
    await a.put(PODS, 'added', object('p', 1), ownedBy('x'))
    expect(await a.put(PODS, 'modified', object('p', 2), ownedBy('y'))).toMatchObject({
      outcome: 'stored',
      formerOwners,
    })
    expect((await a.observe(podsOf('x'))).owned).toEqual([[]])
    expect((await a.observe(podsOf('y'))).owned[0]).toHaveLength(1)
    for (const store of [a, b])
      expect(await store.put(PODS, 'modified', object('p', 2), ownedBy('y'))).toMatchObject({
        outcome: 'present',
        formerOwners,
      })
    expect(await collected(b.identities(PODS))).toMatchObject([{ owner: { name: 'y' }, deleted: false }])
  })

  it('that are cluster-scoped have children in every namespace', async () => {
    await using store = await open(fresh())
    for (const namespace of ['n1', 'n2']) await store.put(PODS, 'added', object('p', 1, { namespace }), ownedBy('x'))
    const { owned } = await store.observe({ primary: { ref: ATS, namespace: undefined, name: 'x' }, owned: [PODS] })
    expect(owned[0]?.map(({ key }) => key.namespace)).toEqual(['n1', 'n2'])
  })
})

describe('what is published', () => {
  it('has no value of a Secret, wherever it may hide', async () => {
    await using store = await open(fresh())
    const secret = object('s', 1, { kind: 'Secret' })
    const value = 'aHVudGVyMg=='
    secret['data'] = { password: value }
    secret['stringData'] = { password: value }
    secret.metadata.annotations = { 'kubectl.kubernetes.io/last-applied-configuration': `{"data":"${value}"}` }
    secret.metadata['managedFields'] = [{ fieldsV1: value }]
    await store.put(SECRETS, 'added', secret)
    await store.put(
      SECRETS,
      'modified',
      { ...secret, metadata: { ...secret.metadata, resourceVersion: '2' } },
      ownedBy('x'),
    )
    await store.put(SECRETS, 'deleted', { ...secret, metadata: { ...secret.metadata, resourceVersion: '3' } })
    const { state } = await store.js.admin.streams.info(store.stream)
    for (let sequence = state.first_seq; sequence <= state.last_seq; sequence++) {
      const message = await store.js.bySequence(store.stream, sequence)
      const everything = JSON.stringify(message?.headers) + Buffer.from(message?.data ?? '').toString()
      expect(everything).not.toContain(value)
    }
  })

  it('is a reference for a Secret, a kind configured so, and an object over the limit', async () => {
    await using store = await open({ ...fresh(), maxObjectBytes: 2000, referenceOnly: [PODS] })
    await store.put(ATS, 'added', object('small', 1, { spec: 'x'.repeat(1000) }))
    await store.put(ATS, 'added', object('large', 2, { spec: 'é'.repeat(1000) }))
    await store.put(PODS, 'added', object('pod', 3))
    const read = async (ref: typeof ATS, name: string) =>
      (await store.observe({ primary: { ref, namespace: 'ns', name } })).primary
    expect(await read(ATS, 'small')).toMatchObject({ referenceOnly: false, object: { spec: 'x'.repeat(1000) } })
    for (const [ref, name] of [
      [ATS, 'large'],
      [PODS, 'pod'],
    ] as const) {
      const stored = await read(ref, name)
      expect(stored).toMatchObject({ referenceOnly: true, object: { metadata: { name } } })
      expect(stored?.object).not.toHaveProperty('spec')
    }
  })

  it('is a reference without most metadata for an object whose metadata are over the limit, in part or in whole', async () => {
    await using store = await open({ ...fresh(), maxObjectBytes: 2000 })
    const controller = { apiVersion: 'v1', kind: 'At', name: 'x', uid: 'uid-x', controller: true }
    const ownerReferences = Array.from({ length: 30 }, (_, n) => ({ ...controller, uid: `${n}`, controller: false }))
    const labels = Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`label${n}`, 'x']))
    const read = async (name: string) => (await store.observe(podNamed(name))).primary
    const { metadata, ...rest } = object('many', 1)
    const known = { ...metadata, generation: 3, creationTimestamp: '2026-01-01T00:00:00Z' }
    const many = { ...rest, metadata: { ...known, labels, ownerReferences: [...ownerReferences, controller] } }
    await store.put(PODS, 'added', many)
    const bare = { apiVersion: 'v1', kind: 'Pod', metadata: { ...known, ownerReferences: [controller] } }
    expect(await read('many')).toMatchObject({ referenceOnly: true, object: bare })
    expect((await read('many'))?.object).toEqual(bare)
    const partial = { ...many, metadata: { ...many.metadata, resourceVersion: '2' }, spec: undefined }
    await store.put(PODS, 'modified', partial, { referenceOnly: true })
    expect((await read('many'))?.object.metadata).toEqual({ ...bare.metadata, resourceVersion: '2' })
    await store.put(PODS, 'deleted', { ...partial, metadata: { ...partial.metadata, resourceVersion: '3' } })
    expect(await read('many')).toBeUndefined()
  })

  it('is a reference for what any process of the installation wants so, also from before it was said', async () => {
    const options = fresh()
    await using before = await open(options)
    await before.put(ATS, 'added', object('old', 1), ownedBy('x'))
    await before.put(ATS, 'deleted', object('gone', 2))
    await before.put(PODS, 'added', object('p', 3))
    await using told = await open({ ...options, referenceOnly: [{ group: ATS.group, resource: ATS.resource }] })
    await using untold = await open(options)
    await untold.put(ATS, 'modified', object('new', 4))
    await before.put(ATS, 'modified', object('meanwhile', 5))
    await using restarted = await open(options)
    const end = new AbortController()
    const events = await collected(restarted.follow({}, end.signal, () => end.abort()))
    expect(new Map(events.map(({ key, referenceOnly }) => [key.name, referenceOnly]))).toEqual(
      new Map([
        ['gone', true],
        ['meanwhile', true],
        ['new', true],
        ['old', true],
        ['p', false],
      ]),
    )
    expect(events.find(({ key }) => key.name === 'old')?.owner).toEqual({ resource: 'ats', name: 'x' })
    expect([told, untold, before].map((store) => store.isReferenceOnly(ATS))).toEqual([true, true, false])
    expect(await before.put(ATS, 'modified', object('old', 6), ownedBy('x'))).toMatchObject({ outcome: 'stored' })
  })

  it('is metadata only where no more was asked for, until somebody brings the whole of that version', async () => {
    await using store = await open(fresh())
    const whole = { ...object('p', 5), spec: { containers: [] } }
    const read = async () => (await store.observe(podNamed('p'))).primary
    const first = await store.put(PODS, 'added', object('p', 5), { referenceOnly: true, origin: 'at/ns.x/1' })
    expect(await read()).toMatchObject({ referenceOnly: true })
    expect(await store.put(PODS, 'added', object('p', 5), { referenceOnly: true })).toMatchObject({
      outcome: 'present',
      sequence: first.sequence,
    })
    const second = await store.put(PODS, 'added', whole)
    expect(second).toMatchObject({ outcome: 'stored', origin: 'at/ns.x/1' })
    expect(await read()).toMatchObject({ referenceOnly: false, object: { spec: { containers: [] } } })
    for (const options of [{ referenceOnly: true }, {}])
      expect(await store.put(PODS, 'added', whole, options)).toMatchObject({
        outcome: 'present',
        sequence: second.sequence,
      })
  })

  it('is metadata only for a deletion, unless somebody needs the last state', async () => {
    await using store = await open(fresh())
    const labelled = (name: string) => {
      const made = object(name, 1)
      return { ...made, metadata: { ...made.metadata, labels: { a: 'b' }, annotations: { c: 'd' } } }
    }
    await store.put(PODS, 'deleted', labelled('plain'))
    await store.put(PODS, 'deleted', labelled('needed'), { lastState: true })
    const end = new AbortController()
    const events = await Array.fromAsync(store.follow({ ref: PODS }, end.signal, () => end.abort()))
    const told = events.map(({ object: { metadata, spec }, event }) => [metadata, spec, event.dataref])
    expect(told).toEqual([
      [labelled('plain').metadata, undefined, '/api/v1/namespaces/ns/pods/plain'],
      [labelled('needed').metadata, { version: 1 }, undefined],
    ])
  })

  it('is a CloudEvent on k8s.> for whoever subscribes', async () => {
    await using store = await open({ ...fresh() })
    const prefix = store.stream.split('_')[0]
    const subscription = store.js.nc.subscribe(`${prefix}.k8s.>`, { max: 1 })
    await store.put(ATS, 'added', object('x', 1, { kind: 'At', apiVersion: 'cnat.example.com/v1alpha1' }))
    for await (const message of subscription) {
      expect(message.subject).toBe(`${prefix}.k8s.cnat%2Eexample%2Ecom.v1alpha1.ats.ns._.x`)
      expect(message.headers?.get('ce-type')).toBe('dev.fairlead.resource.added')
      expect(message.json()).toMatchObject({ kind: 'At' })
    }
  })
})

describe('observing', () => {
  it('gives the primary, its children by resource, and what is related, each once', async () => {
    await using store = await open(fresh())
    await store.put(ATS, 'added', object('x', 1))
    await store.put(PODS, 'added', object('x-pod', 2), ownedBy('x'))
    await store.put(PODS, 'added', object('y-pod', 3), ownedBy('y'))
    await store.put(SECRETS, 'added', object('s', 4))
    await store.put(SECRETS, 'added', object('s', 5, { namespace: 'other' }))
    await store.put(PODS, 'added', object('gone', 6), ownedBy('x'))
    await store.put(PODS, 'deleted', object('gone', 7), ownedBy('x'))
    const observed = await store.observe({
      ...podsOf('x'),
      owned: [PODS, SECRETS],
      related: [{ ref: SECRETS, namespace: 'ns' }, { ref: SECRETS }, { ref: PODS, name: 'x-pod' }],
    })
    const names = (list: { key: { name: string } }[]) => list.map(({ key }) => key.name)
    expect(observed.primary?.key.name).toBe('x')
    expect(observed.owned.map(names)).toEqual([['x-pod'], []])
    expect(observed.related.map(names)).toEqual([['s'], ['s', 's'], ['x-pod']])
  })

  it('tells of one more object when its message is not the known one any more, and keeps it apart from the rest', async () => {
    await using store = await open(fresh())
    await store.put(PODS, 'added', object('p', 1))
    await store.put(ATS, 'added', object('x', 1))
    const of = { ref: ATS, namespace: 'ns', name: 'x' }
    const known = (await store.observe({ primary: of })).primary!
    const told = (news: Observed['news']) =>
      typeof news === 'object' ? [news.verb, news.resourceVersion] : [news, news]
    const asked = async () => {
      const { primary, news } = await store.observe({ ...podNamed('p'), news: { of, known } })
      return [primary?.key.name, ...told(news)]
    }
    expect(await asked()).toEqual(['p', undefined, undefined])
    const ofBefore = { ...known, storedAt: known.storedAt - 1 }
    expect((await store.observe({ ...podNamed('p'), news: { of, known: ofBefore } })).news).toBeDefined()
    await store.put(ATS, 'modified', object('x', 2))
    expect(await asked()).toEqual(['p', 'modified', '2'])
    await store.put(ATS, 'deleted', object('x', 3))
    expect(await asked()).toEqual(['p', 'deleted', '3'])
    const itself = await store.observe({
      primary: of,
      related: [{ ref: ATS }],
      news: { of, known: { ...known, sequence: known.sequence + 2 } },
    })
    expect(itself).toMatchObject({ primary: undefined, related: [[]] })
    await store.put(ATS, 'added', object('x', 4))
    const { primary, news } = await store.observe({ primary: of, news: { of, known } })
    expect([primary?.resourceVersion, ...told(news)]).toEqual(['4', 'added', '4'])
    expect((await store.observe({ ...podNamed('p'), news: { of: { ...of, name: 'y' }, known } })).news).toBe('absent')
  })

  it('gives nothing where nothing is', async () => {
    await using store = await open(fresh())
    expect(await store.observe(podsOf('x'))).toEqual({ primary: undefined, owned: [[]], related: [] })
  })
})

describe('the watch cursor', () => {
  it('stands in the stream behind what it covers, and is read as it was written', async () => {
    await using store = await open(fresh())
    expect(await store.cursor(PODS)).toBeUndefined()
    const { sequence } = await store.put(PODS, 'added', object('p', 5))
    const cursor = { resourceVersion: '5', at: '2026-01-02T03:04:05Z', covers: ['at/1'], incarnation: 'i' }
    const at = await store.setCursor(PODS, undefined, cursor)
    expect(at).toBeGreaterThan(sequence)
    expect(await store.cursor(PODS)).toEqual({ ...cursor, ref: PODS, scope: undefined, sequence: at })
    expect(await store.cursor(PODS, 'ns')).toBeUndefined()
  })

  it('is moved by one of two that know the same one, and is none for its readers while nothing is listed', async () => {
    await using store = await open(fresh())
    const first = await store.moveCursor(PODS, 'x', { resourceVersion: '0', at: '', covers: [], unlisted: true }, 0)
    expect(await store.moveCursor(PODS, 'x', { resourceVersion: '1', at: '' }, 0)).toBeUndefined()
    expect([await store.cursor(PODS, 'x'), (await store.lastCursor(PODS, 'x'))?.sequence]).toEqual([undefined, first])
    const second = await store.moveCursor(PODS, 'x', { resourceVersion: '1', at: '' }, first!)
    expect(await store.moveCursor(PODS, 'x', { resourceVersion: '2', at: '' }, first!)).toBeUndefined()
    expect(await store.cursor(PODS, 'x')).toMatchObject({ resourceVersion: '1', sequence: second })
    await store.removeCursor(first!)
    expect((await store.cursor(PODS, 'x'))?.sequence).toBe(second)
    await store.removeCursor(second!)
    expect(await store.lastCursor(PODS, 'x')).toBeUndefined()
  })

  it('is followed: what is there, then every change', async () => {
    await using store = await open(fresh())
    await store.setCursor(PODS, undefined, { resourceVersion: '5', at: 'x' })
    const seen: string[] = []
    for await (const { ref, scope, resourceVersion } of store.followCursors(new AbortController().signal)) {
      seen.push(`${ref.resource} ${scope} ${resourceVersion}`)
      if (seen.length === 1) await store.setCursor(ATS, 'ns', { resourceVersion: '6', at: 'x' })
      if (seen.length === 2) await store.setCursor(PODS, undefined, { resourceVersion: '0', at: 'x', unlisted: true })
      if (seen.length === 3) break
    }
    expect(seen).toEqual(['pods undefined 5', 'ats ns 6', 'pods undefined 0'])
  })
})

describe('following', () => {
  it('gives what is there, says so once, then gives every change until it is ended', async () => {
    await using store = await open(fresh())
    await store.put(PODS, 'added', object('a', 1))
    await store.put(PODS, 'added', object('b', 2), ownedBy('x'))
    await store.put(ATS, 'added', object('other', 3))
    const seen: string[] = []
    const end = new AbortController()
    const caughtUp = () => void seen.push('caught up')
    const changes = async () => {
      for await (const { verb, key, event } of store.follow({ ref: PODS }, end.signal, caughtUp)) {
        seen.push(`${verb} ${key.name} ${event.resourceversion}`)
        if (verb === 'deleted') end.abort()
      }
    }
    const done = changes()
    await until(async () => seen.includes('caught up'))
    await store.put(PODS, 'modified', object('b', 4), ownedBy('y'))
    await store.put(PODS, 'deleted', object('a', 5))
    await done
    expect(seen).toEqual(['added a 1', 'added b 2', 'caught up', 'modified b 4', 'moved b 4', 'deleted a 5'])
  })

  it('is caught up at once where nothing is', async () => {
    await using store = await open(fresh())
    const end = new AbortController()
    expect(await collected(store.follow({}, end.signal, () => end.abort()))).toEqual([])
  })

  it('passes over what is no event of an object', async () => {
    await using store = await open(fresh())
    const prefix = store.stream.split('_')[0]
    await store.js.publish(`${prefix}.k8s._.v1.pods.ns._.poison`, 'x', {})
    await store.put(PODS, 'added', object('p', 1))
    const end = new AbortController()
    const events = await collected(store.follow({}, end.signal, () => end.abort()))
    expect(events.map(({ key }) => key.name)).toEqual(['p'])
    expect((await collected(store.identities(PODS))).map(({ key }) => key.name)).toEqual(['p'])
    expect(await store.put(PODS, 'modified', object('poison', 1))).toMatchObject({ outcome: 'stored' })
  })
})

describe('the stream', () => {
  it('belongs to one cluster', async () => {
    const options = fresh()
    await using _ = await open({ ...options, cluster: 'one' })
    await using again = await open({ ...options, cluster: 'one' })
    expect(again.cluster).toBe('one')
    await expect(open({ ...options, cluster: 'two' })).rejects.toThrow(/objects of cluster "one", not of two/)
  })

  it('is refused when it exists with other settings, with the field named', async () => {
    await using store = await open({})
    await store.js.admin.streams.delete('EVENTS')
    await store.js.admin.streams.add({
      name: 'EVENTS',
      subjects: ['k8s.>', 'cursor.>'],
      storage: 'file',
      retention: 'limits',
      discard: 'old',
      max_msgs_per_subject: 5,
    })
    const refused = open({})
    await expect(refused).rejects.toThrow(DeclarationMismatchError)
    await expect(refused).rejects.toThrow('max_msgs_per_subject')
    await store.js.admin.streams.delete('EVENTS')
  })

  it.each([{ prefix: 'a.b' }, { prefix: 'a_b' }, { cluster: 'a/b' }, { cluster: '' }])(
    'is not opened for %j',
    async (odd) => {
      await expect(open(odd)).rejects.toThrow(TypeError)
    },
  )
})
