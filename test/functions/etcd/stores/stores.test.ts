import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { PART_BYTES, type Store, whole } from '#functions/etcd/stores'
import { all, startAbs, startGcs, startS3, type TestStore } from '../../../support/object-stores.ts'

const ODD_KEYS = ['plain', 'a/b c', "ü/+%:(1)'*!=&?#", 'x_v10_2026-11-22-18:00:00']
const none = { metadata: {} }

const servers: [string, () => Promise<TestStore>][] = [
  ['S3 (versitygw)', startS3],
  ['ABS (Azurite)', startAbs],
  ['GCS (fake-gcs-server)', startGcs],
]

describe.each(servers)('%s', (_, start) => {
  let server: TestStore
  let store: Store
  beforeAll(async () => {
    server = await start()
    ;({ store } = server)
  })
  afterAll(() => server?.[Symbol.asyncDispose]())

  it('gives back what was stored, in several parts, and any range of it', async () => {
    const bytes = randomBytes(2 * PART_BYTES + 1234)
    expect(await store.put('large', inChunks(bytes, 65_536), { metadata: { who: 'me', 'with-dash': '1' } })).toBe(
      bytes.length,
    )
    expect(Buffer.compare(await all(whole(store, 'large')), bytes)).toBe(0)
    const range = { start: PART_BYTES - 3, length: 10 }
    expect(await all(store.get('large', { range }))).toEqual(bytes.subarray(range.start, range.start + range.length))
    const { size, metadata } = (await store.head('large'))!
    expect(size).toBe(bytes.length)
    expect(metadata).toMatchObject({ who: 'me', 'with-dash': '1' })
  })

  it('stores what has exactly one part, and what has a byte more', async () => {
    for (const size of [PART_BYTES, PART_BYTES + 1, 1]) {
      expect(await store.put('edge', inChunks(randomBytes(size), 1_000_000), none)).toBe(size)
      expect((await store.head('edge'))?.size).toBe(size)
    }
  })

  it('shows nothing of an object before its source has ended, and nothing of one whose source fails', async () => {
    const fails = async function* () {
      for (let sent = 0; sent <= 2 * PART_BYTES; sent += 1_048_576) yield randomBytes(1_048_576)
      expect(await store.head('failed')).toBe(undefined)
      throw new Error('the source is gone')
    }
    await expect(store.put('failed', fails(), none)).rejects.toThrow('the source is gone')
    expect(await store.head('failed')).toBe(undefined)
    await store.put('before', inChunks(Buffer.from('before'), 9), none)
    await expect(store.put('before', fails(), none)).rejects.toThrow('the source is gone')
    expect((await all(store.get('before'))).toString()).toBe('before')
  })

  it('replaces an object at once, unless it is told not to', async () => {
    await store.put('twice', inChunks(Buffer.from('one'), 9), none)
    await store.put('twice', inChunks(Buffer.from('two'), 9), none)
    expect((await all(store.get('twice'))).toString()).toBe('two')
    const refused = store.put('twice', inChunks(Buffer.from('three'), 9), { ...none, ifAbsent: true })
    await expect(refused).rejects.toMatchObject({ name: 'StoreError', reason: 'exists' })
    expect((await all(store.get('twice'))).toString()).toBe('two')
  })

  it('stops at its signal, and leaves nothing', async () => {
    const stop = new AbortController()
    const endless = async function* () {
      for (let n = 0; ; n++) {
        if (n === 40) stop.abort(new Error('enough'))
        yield randomBytes(1_048_576)
      }
    }
    await expect(store.put('endless', endless(), { ...none, signal: stop.signal })).rejects.toThrow('enough')
    expect(await store.head('endless')).toBe(undefined)
  })

  it('lists all that begins with a prefix, page by page, and deletes', async () => {
    const keys = ODD_KEYS.map((key) => `listed/${key}`)
    for (const key of keys) await store.put(key, inChunks(Buffer.from(key), 9), none)
    await store.put('not-listed', inChunks(Buffer.from('x'), 9), none)
    expect((await listed(store, 'listed/')).sort()).toEqual([...keys].sort())
    for (const key of keys) {
      expect((await all(store.get(key))).toString()).toBe(key)
      await store.delete(key)
      await store.delete(key)
      expect(await store.head(key)).toBe(undefined)
    }
    expect(await listed(store, 'listed/')).toEqual([])
  })

  it('says what is missing', async () => {
    const missing = all(store.get('missing'))
    await expect(missing).rejects.toMatchObject({ name: 'StoreError', reason: 'missing' })
    await expect(missing).rejects.toThrow(`${store.address('missing')}: 404`)
  })
})

async function* inChunks(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

async function listed(store: Store, prefix: string): Promise<string[]> {
  const keys: string[] = []
  for await (const { key } of store.list(prefix)) keys.push(key)
  return keys
}
