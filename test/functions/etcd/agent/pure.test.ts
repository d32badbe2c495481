import { createHash, randomBytes } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { periodicKey, surplus } from '../../../../functions/etcd/agent/backup.ts'
import { checked } from '../../../../functions/etcd/agent/checked.ts'
import { MAX_REPORT_BYTES, reportText } from '../../../../functions/etcd/agent/report.ts'

const sha256 = (bytes: Buffer): Buffer => createHash('sha256').update(bytes).digest()
const database = randomBytes(4096)
const snapshot = Buffer.concat([database, sha256(database)])

async function read(bytes: Buffer, size: number) {
  const source = async function* () {
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
  }
  const chunks: Uint8Array[] = []
  let ended: object | undefined
  for await (const chunk of checked(source(), 'it', (checked) => (ended = checked))) chunks.push(chunk)
  return { bytes: Buffer.concat(chunks), ended }
}

describe('a snapshot that is passed on', () => {
  it.each([1, 7, 31, 32, 33, 4096, 4128])(
    'is the same, and is what its digest says, in chunks of %i bytes',
    async (size) => {
      const { bytes, ended } = await read(snapshot, size)
      expect(bytes.equals(snapshot)).toBe(true)
      expect(ended).toEqual({ size: 4128, sha256: sha256(snapshot).toString('hex') })
    },
  )

  it.each<[string, Buffer, RegExp]>([
    ['lacks its end', snapshot.subarray(0, 4000), /4000 bytes are not a whole snapshot/],
    ['has no digest', database, /4096 bytes are not a whole snapshot.*etcdctl snapshot save/],
    ['is empty', Buffer.alloc(0), /0 bytes are not a whole snapshot/],
    ['has one other bit', Buffer.from(snapshot.map((byte, at) => (at === 99 ? byte ^ 1 : byte))), /it is damaged/],
  ])('that %s fails at its end', async (_, bytes, message) => {
    await expect(read(bytes, 1000)).rejects.toThrow(message)
  })
})

const at = (minute: number) => new Date(Date.UTC(2026, 10, 22, 18, minute, 7))

describe('retention', () => {
  const keys = [2, 9, 10, 11].map((revision, index) => periodicKey('etcd/prod', revision, at(index)))

  it('names backups as the operator of v1beta2 does', () => {
    expect(periodicKey('etcd/prod', 12, at(0))).toBe('etcd/prod_v12_2026-11-22-18:00:07')
  })

  it('removes the oldest, however the names are sorted as texts', () => {
    expect(surplus([...keys].reverse(), 'etcd/prod', 2, keys[3]!).old).toEqual(keys.slice(0, 2))
  })

  it('knows by the time what is old, since a restored cluster begins with a lower revision', () => {
    const restored = periodicKey('etcd/prod', 1, at(9))
    expect(surplus([...keys, restored], 'etcd/prod', 1, restored).old).toEqual(keys)
  })

  it('never removes the newest, nor names that are not ours', () => {
    const foreign = [
      'etcd/prod',
      'etcd/prod_v1',
      'etcd/prod-2_v1_2026-11-22-18:00:07',
      'etcd/prod_v1_2026-11-22-18:00:07.old',
      'etcd/prod_vx_2026-11-22-18:00:07',
    ]
    expect(surplus([...foreign, keys[3]!], 'etcd/prod', 1, keys[3]!).old).toEqual([])
  })

  it('neither counts nor removes backups of the future, and names them: they push out none of the present', () => {
    const future = [20, 21].map((revision) => periodicKey('etcd/prod', revision, new Date(Date.UTC(2031, 0, 1))))
    expect(surplus([...keys, ...future], 'etcd/prod', 4, keys[3]!)).toEqual({ old: [], ahead: future })
    expect(surplus([...keys, ...future], 'etcd/prod', 3, keys[3]!).old).toEqual([keys[0]])
  })

  it('removes nothing as long as there are not too many', () => {
    expect(surplus(keys, 'etcd/prod', 4, keys[3]!).old).toEqual([])
  })
})

describe('a report', () => {
  const report = { path: 's3://b/k', etcdVersion: '3.7.3', etcdRevision: 1, size: 1, sha256: 'a', time: 't' }

  it('fits into a termination message, whatever it lists', () => {
    const deleted = Array.from({ length: 1000 }, (_, n) => `key-${n}-${'x'.repeat(500)}`)
    const text = reportText({ ...report, deleted })
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(MAX_REPORT_BYTES)
    expect(JSON.parse(text)).toMatchObject(report)
  })

  it('cuts an error that is too long, also of characters with several bytes', () => {
    const text = reportText({ error: 'ü'.repeat(10_000) })
    expect(Buffer.byteLength(text)).toBeLessThanOrEqual(MAX_REPORT_BYTES)
    expect((JSON.parse(text) as { error: string }).error).toMatch(/^ü+…$/)
  })
})
