import { expect, it } from 'vitest'
import type { Allowance, EventStore } from '#events'
import { ATS, object, openStore, ownedBy, PODS, useStores } from './objects.ts'

const KIB = 1024
const large = { spec: { filler: 'x'.repeat(500 * KIB) } }
/** 10 MiB. */
const PODS_EACH = 20
const podsOf = (name: string, allowance?: Allowance) => ({
  primary: { ref: ATS, namespace: 'ns', name },
  owned: [PODS],
  allowance,
})

const { fresh, open, nats } = useStores()

async function putPods(store: EventStore, name: string, count: number, fields: object = large): Promise<void> {
  await store.put(ATS, 'added', object(name, 1))
  const names = Array.from({ length: count }, (_, index) => `${name}-${index}`)
  await Promise.all(names.map((pod) => store.put(PODS, 'added', object(pod, 1, fields), ownedBy(name))))
}

function counting() {
  const noted = new Map<string, number>()
  let demanded = 0
  const allowance: Allowance = {
    demand: (bytes) => void (demanded = Math.max(demanded, bytes)),
    note: (subject, bytes) => void noted.set(subject, bytes),
  }
  return { allowance, noted, demanded: () => demanded }
}

it('32 reads of 10 MiB at once keep the connection, and every publish beside them is answered', async () => {
  // No time-out: a page that is asked for again comes twice, and the connection is for what the reads have asked for once.
  await using store = await openStore(nats().url, fresh(), 3_600_000)
  await putPods(store, 'big', PODS_EACH)
  let disconnected = 0
  store.js.onDisconnect(() => disconnected++)
  const reads = Promise.all(Array.from({ length: 32 }, () => store.observe(podsOf('big'))))
  const done = new AbortController()
  const publishing = (async () => {
    for (let version = 2; !done.signal.aborted; version++) await store.put(PODS, 'modified', object('beside', version))
  })()
  const observed = await reads
  done.abort()
  await publishing
  expect(disconnected).toBe(0)
  expect(observed.map(({ owned }) => owned[0]?.length)).toEqual(Array(32).fill(PODS_EACH))
})

it('a read in pages sees every object, each once, at least as new as it was before, while they are written', async () => {
  const options = fresh()
  await using reader = await open(options)
  await using writer = await open(options)
  await putPods(writer, 'busy', PODS_EACH)
  const confirmed = new Map<string, number>()
  const done = new AbortController()
  const writing = (async () => {
    for (let version = 2; !done.signal.aborted; version++) {
      const pod = `busy-${(version * 7) % PODS_EACH}`
      await writer.put(PODS, 'modified', object(pod, version, large), ownedBy('busy'))
      confirmed.set(pod, version)
    }
  })()
  for (let round = 0; round < 15; round++) {
    const before = new Map(confirmed)
    const { owned } = await reader.observe(podsOf('busy'))
    const versions = new Map(owned[0]?.map(({ key, resourceVersion }) => [key.name, Number(resourceVersion)]))
    expect([owned[0]?.length, versions.size]).toEqual([PODS_EACH, PODS_EACH])
    for (const [pod, version] of before) expect(versions.get(pod)).toBeGreaterThanOrEqual(version)
  }
  done.abort()
  await writing
})

it('an allowance hears of each page before it, of each message after it, and ends the read by throwing', async () => {
  await using store = await open(fresh())
  await putPods(store, 'some', PODS_EACH)
  const { allowance, noted, demanded } = counting()
  await store.observe(podsOf('some', allowance))
  expect(noted.size).toBe(PODS_EACH + 1)
  expect([...noted.values()].reduce((sum, bytes) => sum + bytes, 0)).toBeGreaterThan(PODS_EACH * 500 * KIB)
  expect(demanded()).toBeLessThan(4 * KIB * KIB)
  const refusing = (bytes: number): Allowance => ({
    demand: () => undefined,
    note: (_, size) => {
      if ((bytes -= size) < 0) throw new RangeError('too much')
    },
  })
  await expect(store.observe(podsOf('some', refusing(2 * KIB * KIB)))).rejects.toThrow('too much')
  expect((await store.observe(podsOf('some'))).owned[0]).toHaveLength(PODS_EACH)
  expect(store.js.incoming.free).toBe(store.js.incoming.capacity)
})

it('more objects than one request can name are read too, within the allowance', async () => {
  await using store = await open(fresh())
  await putPods(store, 'many', 1100, {})
  const { allowance, noted } = counting()
  expect((await store.observe(podsOf('many', allowance))).owned[0]).toHaveLength(1100)
  expect(noted.size).toBeGreaterThanOrEqual(1101)
  expect(store.js.incoming.free).toBe(store.js.incoming.capacity)
})

it('a read that is given up while it waits for its turn leaves the line', async () => {
  await using store = await open(fresh())
  await putPods(store, 'late', 1)
  const all = await store.js.incoming.acquire(store.js.incoming.capacity)
  const abort = new AbortController()
  const reading = store.observe({ ...podsOf('late'), signal: abort.signal })
  abort.abort(new Error('the lease is lost'))
  await expect(reading).rejects.toThrow('the lease is lost')
  all[Symbol.dispose]()
  expect((await store.observe(podsOf('late'))).owned[0]).toHaveLength(1)
})
