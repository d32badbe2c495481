import { execFile } from 'node:child_process'
import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ensureBinaries, silentProgress } from '#lab'
import { SOON, TestEtcd } from '../../../support/etcd.ts'
import { shortTempDir } from '../../../support/servers.ts'

const BIN = fileURLToPath(new URL('../../../../cli/bin.js', import.meta.url))
const run = promisify(execFile)
const MEMBERS = ['a', 'b', 'c'] as const
const key = (at: number) => Buffer.from(`key-${at}`)

describe('the agent where a quorum is lost', () => {
  let etcd: TestEtcd
  let etcdutl: string
  let dir: string

  beforeAll(async () => {
    ;[etcd, dir] = await Promise.all([TestEtcd.open(), shortTempDir()])
    etcdutl = (await ensureBinaries(['etcdutl', 'etcd'], silentProgress))('etcdutl')
    for (const name of MEMBERS) await etcd.name(name)
    await Promise.all(MEMBERS.map((name) => etcd.start(name, { cluster: MEMBERS })))
    for (const name of MEMBERS) await etcd.serves(name)
    using client = etcd.open('a')
    for (let at = 0; at < 20; at++) await client.call('put', { key: key(at), value: key(at) }, SOON)
    using survivor = etcd.open('c')
    // Linearizable: it has all of them.
    await survivor.call('range', { key: key(19) }, SOON)
    for (const name of ['a', 'b']) await etcd.kill(name)
  })
  afterAll(() => etcd?.[Symbol.asyncDispose]())

  async function recover(dataDir: string, from: readonly string[], more: readonly string[] = []) {
    const name = 'seed'
    await etcd.name(name)
    const words = [
      `--endpoints=${from.map((one) => etcd.clientUrl(one)).join(',')}`,
      `--data-dir=${dataDir}`,
      `--name=${name}`,
      `--peer-url=${etcd.peerUrl(name)}`,
      '--token=second',
      `--etcdutl=${etcdutl}`,
    ]
    const { stdout } = await run(process.execPath, [BIN, 'etcd-agent', 'recover', ...words, ...more])
    return JSON.parse(stdout) as Record<string, unknown>
  }

  it('makes the data of a new cluster from the member that is left, which loses nothing', async () => {
    expect(await recover(etcd.dataDir('seed'), MEMBERS)).toMatchObject({
      path: etcd.clientUrl('c'),
      wasThere: false,
      sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
    await etcd.start('seed', { state: 'existing' })
    await etcd.serves('seed')
    using seed = etcd.open('seed')
    using survivor = etcd.open('c')
    const all = { key: key(0), range_end: Buffer.from('kez'), serializable: true }
    const [is, was] = [await seed.call('range', all, SOON), await survivor.call('range', all, SOON)]
    expect(is.kvs.map(({ value }) => value.toString())).toEqual(was.kvs.map(({ value }) => value.toString()))
    expect(is.kvs).toHaveLength(20)
    expect(is.header.revision).toBeGreaterThan(1_000_000_000)
    expect(is.header.cluster_id).not.toBe(was.header.cluster_id)
  })

  it('does nothing the second time, also when that member is gone', async () => {
    const dataDir = join(dir, 'again', 'data')
    await mkdir(join(dir, 'again'))
    const { sha256 } = await recover(dataDir, ['c'])
    expect(await recover(dataDir, ['a'])).toMatchObject({ wasThere: true, sha256, path: etcd.clientUrl('c') })
  })

  it('makes nothing where no member answers', async () => {
    await mkdir(join(dir, 'none'))
    await expect(recover(join(dir, 'none', 'data'), ['a', 'b'])).rejects.toThrow('no etcd member answers within 5 s')
    expect(await readdir(join(dir, 'none'))).not.toContain('data')
  })

  it('reads the member with the highest revision, and none that has less than is wanted', async () => {
    const revisions = { first: 5, second: 2 }
    for (const [name, revision] of Object.entries(revisions)) {
      await etcd.start(name)
      await etcd.serves(name)
      using client = etcd.open(name)
      for (let at = 1; at < revision; at++) await client.call('put', { key: key(at), value: key(at) }, SOON)
    }
    await mkdir(join(dir, 'most'))
    const { path } = await recover(join(dir, 'most', 'data'), ['second', 'first'], ['--revision=5'])
    expect(path).toBe(etcd.clientUrl('first'))
    await mkdir(join(dir, 'less'))
    const less = recover(join(dir, 'less', 'data'), ['second'], ['--revision=5'])
    await expect(less).rejects.toThrow('has the highest revision of those that answer, 2, and 5 is wanted')
  })
})
