import { execFile, spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { backup, openStore } from '#functions/etcd/agent'
import { type Store, whole } from '#functions/etcd/stores'
import { type BinaryPaths, ensureBinaries, silentProgress } from '#lab'
import { command } from '../../../support/command.ts'
import { SOON, TestEtcd } from '../../../support/etcd.ts'
import { BIN, fairlead } from '../../../support/fairlead.ts'
import { startFaultyProxy } from '../../../support/faulty-proxy.ts'
import { all, startS3, type TestStore } from '../../../support/object-stores.ts'
import { shortTempDir } from '../../../support/servers.ts'

const run = promisify(execFile)

describe('the agent on a real etcd and a real S3', () => {
  let server: TestStore
  let store: Store
  let etcd: TestEtcd
  let binaries: BinaryPaths
  let dir: string
  let report: string

  beforeAll(async () => {
    ;[server, etcd, binaries, dir] = await Promise.all([
      startS3(),
      TestEtcd.open(),
      ensureBinaries(['etcdutl', 'etcd'], silentProgress),
      shortTempDir(),
    ])
    ;({ store } = server)
    report = join(dir, 'report')
    await mkdir(join(dir, 'secret'))
    for (const [name, text] of Object.entries(server.secret)) await writeFile(join(dir, 'secret', name), text)
    await etcd.name('s')
    await etcd.start('a')
    await etcd.serves('a')
    using client = etcd.open('a')
    // Larger than one part, so that a snapshot is under way for some time.
    for (let n = 0; n < 24; n++)
      await client.call('put', { key: Buffer.from(`key-${n}`), value: randomBytes(1_048_576) }, SOON)
  })
  afterAll(async () => {
    await etcd?.[Symbol.asyncDispose]()
    await server?.[Symbol.asyncDispose]()
  })

  const words = (task: string, path: string, more: readonly string[] = [], endpoint = server.url) => [
    'etcd-agent',
    task,
    '--store=s3',
    `--path=backups/${path}`,
    `--endpoint=${endpoint}`,
    `--store-secret=${join(dir, 'secret')}`,
    `--report=${report}`,
    ...more,
  ]
  const from = (endpoints = etcd.clientUrl('a')) => [`--endpoints=${endpoints}`]
  const reported = async () => JSON.parse(await readFile(report, 'utf8')) as Record<string, unknown>

  /** Returns the report of an agent that succeeds. By default, it runs in this process. */
  async function agent(task: string, path: string, more: readonly string[] = [], run = command) {
    const { code, stdout, stderr } = await run(words(task, path, more))
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(await reported()).toEqual(JSON.parse(stdout))
    return reported()
  }

  /** Returns the error of a failing agent, from standard error and from its report. */
  async function failure(task: string, path: string, more: readonly string[] = [], endpoint?: string, run = command) {
    const { code, stderr } = await run(words(task, path, more, endpoint))
    expect(code).toBe(1)
    const { error } = (await reported()) as { error: string }
    expect(stderr).toBe(`fairlead: ${error}\n`)
    expect(error).not.toContain('secret-of-tests')
    return error
  }

  it('stores a snapshot that etcdutl finds whole, and says what it is', async () => {
    const made = await agent('backup', 'once', from(), fairlead)
    const bytes = await all(whole(store, 'once'))
    expect(made).toMatchObject({
      path: 's3://backups/once',
      etcdVersion: '3.7.3',
      etcdRevision: 25,
      size: bytes.length,
      sha256: createHash('sha256').update(bytes).digest('hex'),
    })
    await writeFile(join(dir, 'snapshot.db'), bytes)
    const { stdout } = await run(binaries('etcdutl'), ['snapshot', 'status', join(dir, 'snapshot.db'), '-w', 'json'])
    expect(JSON.parse(stdout)).toMatchObject({ revision: 25, version: '3.7.0' })
  })

  it('finds the revision and the version in the pages of a snapshot whose metadata do not tell them', async () => {
    await agent('backup', 'ours', from())
    await store.put('foreign', whole(store, 'ours'), { metadata: {} })
    const { sha256, etcdRevision, etcdVersion } = await agent('verify', 'foreign')
    expect({ etcdRevision, etcdVersion }).toEqual({ etcdRevision: 25, etcdVersion: '3.7.0' })
    expect(sha256).toBe((await agent('verify', 'ours'))['sha256'])
  })

  it('takes the member with the highest revision, and does not mind those that do not answer', async () => {
    const made = await agent('backup', 'some', from(`http://127.0.0.1:9,${etcd.clientUrl('a')}`))
    expect(made['silent']).toEqual([expect.stringContaining('http://127.0.0.1:9')])
  })

  it('keeps so many periodic backups, and deletes none of another owner', async () => {
    const often = (owner: string) => [...from(), '--periodic', '--keep=2', `--owner=${owner}`]
    const { path: foreign } = await agent('backup', 'often', often('default/other'))
    const paths: unknown[] = []
    for (let n = 0; n < 3; n++) {
      using client = etcd.open('a')
      await client.call('put', { key: Buffer.from('again'), value: Buffer.from(String(n)) }, SOON)
      paths.push((await agent('backup', 'often', often('default/mine')))['path'])
    }
    const kept: string[] = []
    for await (const { key } of store.list('often')) kept.push(store.address(key))
    expect(new Set(kept)).toEqual(new Set([foreign, ...paths.slice(1)]))
    expect(await reported()).toMatchObject({ deleted: [String(paths[0]).replace('s3://backups/', '')] })
  })

  it('keeps so many of its own, however many of another owner are between them', async () => {
    using client = etcd.open('a')
    const paths: Record<string, unknown[]> = { mine: [], other: [] }
    for (let n = 0; n < 6; n++) {
      await client.call('put', { key: Buffer.from('again'), value: Buffer.from(String(n)) }, SOON)
      const who = n % 3 === 0 ? 'mine' : 'other'
      const often = [...from(), '--periodic', `--owner=default/${who}`, ...(who === 'mine' ? ['--keep=2'] : [])]
      paths[who]!.push((await agent('backup', 'shared', often))['path'])
    }
    await client.call('put', { key: Buffer.from('again'), value: Buffer.from('last') }, SOON)
    const often = [...from(), '--periodic', '--keep=2', '--owner=default/mine']
    paths['mine']!.push((await agent('backup', 'shared', often))['path'])
    const kept: string[] = []
    for await (const { key } of store.list('shared')) kept.push(store.address(key))
    expect(new Set(kept)).toEqual(new Set([...paths['other']!, ...paths['mine']!.slice(-2)]))
  })

  it('keeps so many of its own, and all of EtcdBackups with its name in other clusters or without a UID, and names those', async () => {
    const owners = ['default/mine', 'default/mine/other', 'default/mine-too/other', 'default/mine/this']
    for (const [n, owner] of owners.entries())
      for (const key of [`named_v${n}_2026-01-0${n + 1}-00:00:00`, `named_v${n}_2026-01-0${n + 1}-01:00:00`])
        await store.put(key, whole(store, 'ours'), { metadata: { 'fairlead-backup': owner } })
    const often = [...from(), '--periodic', '--keep=2', '--owner=default/mine/this']
    expect(await agent('backup', 'named', often)).toMatchObject({
      deleted: ['named_v3_2026-01-04-00:00:00'],
      namesakes: { first: 's3://backups/named_v0_2026-01-01-00:00:00', count: 4 },
    })
  })

  it('has stored a backup that it reports, also if it is stopped before it has deleted old ones', async () => {
    const stop = new AbortController()
    await using proxy = await startFaultyProxy(server.url, (request) => {
      if (!request.includes('list-type=2')) return undefined
      stop.abort(new Error('late'))
      return 'silent'
    })
    const secret = join(dir, 'secret')
    const opened = await openStore({ kind: 's3', path: 'backups/stopped', secret, endpoint: proxy.url })
    const about = { endpoints: [etcd.clientUrl('a')], owner: 'default/mine', now: new Date(), timeoutMs: 60_000 }
    const made = await backup({ ...opened, ...about, periodic: { most: 1 }, signal: stop.signal })
    expect(made).toMatchObject({ retentionError: 'stopped before all old backups were deleted', deleted: [] })
    expect((await store.head(made.path.replace('s3://backups/', '')))?.size).toBe(made.size)
  })

  it('keeps so many of the present when a clock that was wrong has left backups of the future, and names those', async () => {
    const owner = { 'fairlead-backup': 'default/mine' }
    const future = ['clock_v7_2131-01-01-00:00:00', 'clock_v8_2131-01-01-01:00:00']
    for (const key of future) await store.put(key, whole(store, 'ours'), { metadata: owner })
    const paths: unknown[] = []
    for (let n = 0; n < 3; n++) {
      using client = etcd.open('a')
      await client.call('put', { key: Buffer.from('again'), value: Buffer.from(String(n)) }, SOON)
      const often = [...from(), '--periodic', '--keep=2', '--owner=default/mine']
      paths.push((await agent('backup', 'clock', often))['path'])
    }
    const ahead = future.map((key) => store.address(key))
    const kept: string[] = []
    for await (const { key } of store.list('clock')) kept.push(store.address(key))
    expect(new Set(kept)).toEqual(new Set([...ahead, ...paths.slice(1)]))
    expect(await reported()).toMatchObject({ ahead })
  })

  it('publishes nothing when it is killed in the middle, and succeeds when it runs again', async () => {
    let parts = 0
    let half: () => void
    const isHalf = new Promise<void>((resolve) => (half = resolve))
    const slow = (request: string) => {
      if (/partNumber=2/.test(request) && parts++ === 0) half()
      // The second part never gets through, so that the kill is in the middle.
      return /partNumber=2/.test(request) ? ('silent' as const) : undefined
    }
    await using proxy = await startFaultyProxy(server.url, slow)
    const child = spawn(process.execPath, [BIN, ...words('backup', 'killed', from(), proxy.url)], { stdio: 'ignore' })
    await isHalf
    child.kill('SIGKILL')
    await once(child, 'exit')
    expect(await store.head('killed')).toBe(undefined)
    await agent('backup', 'killed', from())
    expect((await store.head('killed'))?.size).toBeGreaterThan(24 * 1_048_576)
  })

  it('stops in order at SIGTERM: nothing is published, and no part is left behind', async () => {
    let half: () => void
    const isHalf = new Promise<void>((resolve) => (half = resolve))
    await using proxy = await startFaultyProxy(server.url, (request) => {
      if (!/partNumber=2/.test(request)) return undefined
      half()
      return 'silent'
    })
    const child = spawn(process.execPath, [BIN, ...words('backup', 'stopped', from(), proxy.url)], { stdio: 'ignore' })
    await isHalf
    child.kill('SIGTERM')
    const [code] = (await once(child, 'exit')) as [number]
    expect(code).toBe(130)
    expect(await reported()).toEqual({ error: 'stopped by SIGTERM' })
    expect(proxy.requests.some((request) => /^DELETE .*uploadId/.test(request))).toBe(true)
    expect(await store.head('stopped')).toBe(undefined)
  })

  it('does not replace a backup by one that is not finished in time', async () => {
    await agent('backup', 'safe', from())
    const before = await store.head('safe')
    const error = await failure('backup', 'safe', [...from(), '--timeout=1'], await deafEndpoint(), fairlead)
    expect(error).toBe('not finished within 1 s: give it a longer timeout')
    expect((await store.head('safe'))?.size).toBe(before?.size)
  })

  const servers: AsyncDisposable[] = []
  afterAll(async () => {
    for (const server of servers) await server[Symbol.asyncDispose]()
  })
  /** Its parts never end. */
  async function deafEndpoint(): Promise<string> {
    const proxy = await startFaultyProxy(server.url, (request) => (/partNumber/.test(request) ? 'silent' : undefined))
    servers.push(proxy)
    return proxy.url
  }

  it('reports in time, also if the store falls silent in the middle and does not even take the end of the upload', async () => {
    const isFirst = (request: string) => request.includes('?uploads')
    await using silent = await startFaultyProxy(server.url, (request) => (isFirst(request) ? undefined : 'silent'))
    expect(await failure('backup', 'silent', [...from(), '--timeout=2'], silent.url, fairlead)).toMatch(
      /^not finished within 2 s/,
    )
  })

  it.each<[string, () => readonly string[], RegExp]>([
    ['no member', () => ['--endpoints=http://127.0.0.1:9'], /^no etcd member answers within 5 s: check the endpoints/],
    ['no bucket', () => [...from(), '--path=nowhere/x'], /NoSuchBucket.*: create the bucket nowhere/],
  ])('says what is wrong where there is %s', async (_, more, message) => {
    expect(await failure('backup', 'x', more())).toMatch(message)
  })

  it('finds a snapshot damaged that has one other bit', async () => {
    await agent('backup', 'good', from())
    const bytes = await all(whole(store, 'good'))
    bytes[1_000_000] = (bytes[1_000_000] ?? 0) ^ 1
    await store.put('bad', oneChunk(bytes), { metadata: {} })
    expect(await failure('verify', 'bad')).toMatch(/^s3:\/\/backups\/bad: .* it is damaged$/)
  })

  const seed = (dataDir: string, token = 'second') => [
    `--data-dir=${dataDir}`,
    '--name=s',
    `--peer-url=${etcd.peerUrl('s')}`,
    `--token=${token}`,
    `--etcdutl=${binaries('etcdutl')}`,
  ]

  it('restores into a new cluster, whose watchers notice by the revision', async () => {
    const { sha256 } = await agent('backup', 'restored', from())
    const dataDir = etcd.dataDir('s')
    expect(await agent('restore', 'restored', [...seed(dataDir), `--sha256=${sha256}`])).toMatchObject({
      wasThere: false,
    })
    await etcd.start('s', { state: 'existing' })
    await etcd.serves('s')
    using before = etcd.open('a')
    using after = etcd.open('s')
    const key = Buffer.from('key-7')
    const [was, is] = [await before.call('range', { key }, SOON), await after.call('range', { key }, SOON)]
    expect(is.kvs[0]?.value.equals(was.kvs[0]?.value ?? Buffer.alloc(0))).toBe(true)
    expect(is.header.revision).toBeGreaterThan(1_000_000_000)
    expect(is.header.cluster_id).not.toBe(was.header.cluster_id)
  })

  it('restores a cluster of etcd 3.6, by the etcdutl of 3.7', async () => {
    await etcd.start('old', { binary: 'etcd-3.6' })
    await etcd.serves('old')
    using before = etcd.open('old')
    await before.call('put', { key: Buffer.from('a'), value: Buffer.from('1') }, SOON)
    const made = await agent('backup', 'old', from(etcd.clientUrl('old')))
    expect(made['etcdVersion']).toMatch(/^3\.6\./)
    await etcd.name('new')
    const peerUrl = `--peer-url=${etcd.peerUrl('new')}`
    const more = [
      `--data-dir=${etcd.dataDir('new')}`,
      '--name=new',
      peerUrl,
      '--token=t',
      `--etcdutl=${binaries('etcdutl')}`,
    ]
    await agent('restore', 'old', more)
    await etcd.start('new', { binary: 'etcd-3.6', state: 'existing' })
    await etcd.serves('new')
    using after = etcd.open('new')
    expect((await after.call('range', { key: Buffer.from('a') }, SOON)).kvs[0]?.value.toString()).toBe('1')
  })

  it('restores for etcd 3.7 what etcd 3.6 refuses, and leaves as it is', async () => {
    await agent('backup', 'later', from())
    await etcd.name('later')
    const seedOf = [
      `--data-dir=${etcd.dataDir('later')}`,
      '--name=later',
      `--peer-url=${etcd.peerUrl('later')}`,
      '--token=later',
      `--etcdutl=${binaries('etcdutl')}`,
    ]
    await agent('restore', 'later', seedOf)
    await etcd.start('later', { binary: 'etcd-3.6', state: 'existing' })
    await expect(etcd.serves('later')).rejects.toThrow(/3\.7\.0.* is not supported/)
    await etcd.start('later', { state: 'existing' })
    await etcd.serves('later')
    using client = etcd.open('later')
    expect((await client.call('range', { key: Buffer.from('key-7') }, SOON)).kvs).toHaveLength(1)
  })

  it('restores once: the second run with a token does nothing, and another token is refused', async () => {
    await agent('backup', 'again', from())
    const dataDir = join(dir, 'again', 'data')
    await mkdir(join(dir, 'again'))
    await agent('restore', 'again', seed(dataDir))
    const { mtimeMs } = await stat(join(dataDir, 'member', 'snap', 'db'))
    expect(await agent('restore', 'again', seed(dataDir))).toMatchObject({ wasThere: true })
    expect((await stat(join(dataDir, 'member', 'snap', 'db'))).mtimeMs).toBe(mtimeMs)
    expect(await failure('restore', 'again', seed(dataDir, 'third'))).toMatch(/has data of another cluster/)
    expect(await readdir(join(dir, 'again'))).toEqual(['data'])
  })

  it('begins anew after a kill, whatever the first run has left behind', async () => {
    await agent('backup', 'left', from())
    const dataDir = join(dir, 'left', 'data')
    await mkdir(join(dir, 'left', '.data.restore', 'data', 'member'), { recursive: true })
    await writeFile(join(dir, 'left', '.data.restore', 'snapshot.db'), 'half')
    expect(await agent('restore', 'left', seed(dataDir))).toMatchObject({ wasThere: false })
    expect(await readdir(join(dir, 'left'))).toEqual(['data'])
  })

  it('makes no directory of a snapshot that is damaged, or is another one than was verified', async () => {
    const bytes = await all(whole(store, 'once'))
    bytes[999] = (bytes[999] ?? 0) ^ 1
    await store.put('damaged', oneChunk(bytes), { metadata: {} })
    const dataDir = join(dir, 'none', 'data')
    await mkdir(join(dir, 'none'))
    expect(await failure('restore', 'damaged', seed(dataDir))).toMatch(/it is damaged$/)
    const other = [...seed(dataDir), `--sha256=${'0'.repeat(64)}`]
    expect(await failure('restore', 'once', other)).toMatch(/was verified: it was replaced meanwhile$/)
    expect(await readdir(join(dir, 'none'))).not.toContain('data')
  })
})

async function* oneChunk(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes
}
