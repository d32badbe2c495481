import { describe, expect, it } from 'vitest'
import { startTestNats } from '../support/servers.ts'
import { object, openStore, ownedBy, PODS, until } from './objects.ts'

const pod = (name: string) => ({ primary: { ref: PODS, namespace: 'ns', name } })

describe('when the server dies', () => {
  it('loses no version whose put has resolved, and stores those under way once it is back', async () => {
    await using nats = await startTestNats()
    await using store = await openStore(nats.url)
    const confirmed = new Map<string, number>()
    const end = new AbortController()
    const writer = async (name: string) => {
      for (let version = 1; !end.signal.aborted; version++) {
        await store.put(PODS, 'modified', object(name, version), ownedBy(name))
        confirmed.set(name, version)
      }
    }
    const names = Array.from({ length: 8 }, (_, at) => `p${at}`)
    const writers = names.map(writer)
    for (let round = 0; round < 3; round++) {
      const before = new Map(confirmed)
      await until(async () => names.every((name) => (confirmed.get(name) ?? 0) > (before.get(name) ?? 0) + 20))
      nats.signal('SIGKILL')
      await nats.restart()
    }
    end.abort()
    await Promise.all(writers)
    for (const name of names) {
      const { primary } = await store.observe(pod(name))
      expect(primary?.resourceVersion).toBe(String(confirmed.get(name)))
    }
    expect((await store.js.admin.streams.info(store.stream)).state.messages).toBe(names.length + 1)
  })

  it('repeats a publish whose answer was lost, and the version is there once', async () => {
    await using nats = await startTestNats()
    await using store = await openStore(nats.url, {}, 1000)
    await store.put(PODS, 'added', object('p', 1))
    nats.signal('SIGSTOP')
    const put = store.put(PODS, 'modified', object('p', 2))
    // Longer than one request waits: its answer comes too late to be believed.
    await new Promise((resolve) => setTimeout(resolve, 1300))
    nats.signal('SIGCONT')
    expect(['stored', 'present']).toContain((await put).outcome)
    expect((await store.observe(pod('p'))).primary?.resourceVersion).toBe('2')
    expect((await store.js.admin.streams.info(store.stream)).state.last_seq).toBe(3)
  })

  it('gives up when its caller does', async () => {
    await using nats = await startTestNats()
    await using store = await openStore(nats.url)
    nats.signal('SIGKILL')
    const end = new AbortController()
    const put = (signal?: AbortSignal) => store.put(PODS, 'added', object('p', 1), { signal })
    const patient = put()
    const waits = put(end.signal)
    const tries = store.put(PODS, 'added', object('q', 1), { signal: end.signal })
    const reads = store.observe({ ...pod('p'), signal: end.signal })
    end.abort(new Error('the lease is over'))
    for (const impatient of [waits, tries, reads]) await expect(impatient).rejects.toThrow('the lease is over')
    await nats.restart()
    expect(await patient).toMatchObject({ sequence: 2 })
  })

  it('believes nothing that it remembers from before', async () => {
    await using nats = await startTestNats()
    await using store = await openStore(nats.url)
    await store.put(PODS, 'added', object('p', 1))
    // As after a loss of power: the end of the stream is gone.
    await store.js.admin.streams.purge(store.stream, { filter: 'k8s.>' })
    const status = store.js.nc.status()[Symbol.asyncIterator]()
    await nats.restart()
    while ((await status.next()).value?.type !== 'reconnect');
    expect(await store.put(PODS, 'modified', object('p', 1))).toMatchObject({ outcome: 'stored' })
  })
})
