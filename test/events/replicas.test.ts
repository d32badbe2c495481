import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestNats } from '../support/servers.ts'
import { ATS, collected, object, openStore, ownedBy, PODS, putPod, type Store, selected } from './objects.ts'

describe('on three replicas', () => {
  let nats: Awaited<ReturnType<typeof startTestNats>>
  const stores: Awaited<ReturnType<typeof openStore>>[] = []

  beforeAll(async () => {
    nats = await startTestNats({ replicas: 3 })
    for (const url of nats.urls) stores.push(await openStore(url, { replicas: 3 }))
  })
  afterAll(async () => {
    for (const store of stores) await store[Symbol.asyncDispose]()
    await nats[Symbol.asyncDispose]()
  })

  const each = (at: number) => stores[at % stores.length]!

  it('observe sees what put returned, whichever server either of them asks', async () => {
    // Without load replicas hardly ever lag; with it, one read in twenty would be stale.
    const end = new AbortController()
    const spec = 'x'.repeat(3000)
    const load = stores.flatMap((store, at) =>
      Array.from({ length: 10 }, async (_, writer) => {
        for (let version = 1; !end.signal.aborted; version++)
          await store.put(PODS, 'modified', object(`load-${at}-${writer}`, version, { spec }))
      }),
    )
    const query = { primary: { ref: ATS, namespace: 'ns', name: 'x' }, owned: [PODS] }
    for (let version = 1; version <= 70; version++) {
      await each(version).put(ATS, 'modified', object('x', version))
      await each(version).put(PODS, 'modified', object('x-pod', version), ownedBy('x'))
      const { primary, owned } = await each(version + 1 + (version % 2)).observe(query)
      expect([primary, ...(owned[0] ?? [])].map((found) => found?.resourceVersion)).toEqual([
        `${version}`,
        `${version}`,
      ])
    }
    end.abort()
    await Promise.all(load)
  })

  it('observe sees that a deletion was stored, and that nothing was', async () => {
    for (let round = 1; round <= 30; round++) {
      const query = { primary: { ref: PODS, namespace: 'ns', name: `gone${round}` } }
      expect((await each(round).observe(query)).primary).toBeUndefined()
      await each(round).put(PODS, 'added', object(`gone${round}`, 2 * round))
      await each(round).put(PODS, 'deleted', object(`gone${round}`, 2 * round + 1))
      expect((await each(round + 1).observe(query)).primary).toBeUndefined()
    }
  })

  it('a version that all bring at once is stored once, and an older one never', async () => {
    for (let version = 2; version <= 30; version++) {
      const puts = stores.map((store, at) => store.put(PODS, 'modified', object('p', at === 0 ? version - 1 : version)))
      const results = await Promise.all(puts)
      const sequences = new Set(results.slice(1).map(({ sequence }) => sequence))
      expect(sequences.size).toBe(1)
      const { primary } = await each(version).observe({ primary: { ref: PODS, namespace: 'ns', name: 'p' } })
      expect(primary).toMatchObject({ resourceVersion: `${version}`, sequence: [...sequences][0] })
    }
  })

  it('identities and followers that ask another server miss nothing that was confirmed', async () => {
    for (let round = 0; round < 15; round++) {
      const namespace = `list${round}`
      await Promise.all(
        Array.from({ length: 20 }, (_, at) => each(round).put(PODS, 'added', object(`p${at}`, at + 1, { namespace }))),
      )
      const found = await collected(each(round + 1).identities(PODS, namespace))
      expect(found.map(({ object: { metadata } }) => metadata.name).toSorted()).toHaveLength(20)
    }
  })

  describe('objects that a selection selects', () => {
    beforeAll(async () => void (await stores[0]!.put(ATS, 'added', object('a', 1))))

    /** Any server while none leads. */
    const leader = async () => {
      const { cluster } = await stores[0]!.js.admin.streams.info(stores[0]!.stream)
      return Math.max(nats.names.indexOf(cluster?.leader ?? ''), 0)
    }
    let version = 1000
    /** Alternates between two states, so that a late read returns the wrong one. */
    const change = async (store: Store) => {
      await putPod(store, 'modified', 'p', ++version, version % 2 === 0 ? 'mine' : 'other')
      return version % 2 === 0 ? [`p@${version}`] : []
    }

    it('a follower that is behind does not show what was before', async () => {
      const leading = await leader()
      const behind = (leading + 1) % 3
      const [writer, reader] = [stores[leading]!, stores[behind]!]
      await selected(reader)
      for (let round = 0; round < 8; round++) {
        nats.signal('SIGSTOP', behind)
        await Promise.all(
          Array.from({ length: 30 }, (_, at) =>
            putPod(writer, 'modified', `f${at}`, ++version, 'other', { spec: 'x'.repeat(3000) }),
          ),
        )
        const wanted = await change(writer)
        const found = selected(reader)
        reader.js.outbox.flush()
        nats.signal('SIGCONT', behind)
        expect(await found).toEqual(wanted)
      }
    })

    it('every read shows what was confirmed before it, while the leader is killed and connections are lost', async () => {
      const check = async (at: number) => {
        const wanted = await change(each(at))
        expect(await selected(each(at + 1))).toEqual(wanted)
      }
      for (let at = 0; at < 10; at++) await check(at)
      const leading = await leader()
      const going = (async () => {
        for (let at = 0; at < 20; at++) await check(at)
      })()
      nats.signal('SIGKILL', leading)
      await going
    })
  })
})
