import { createHash } from 'node:crypto'
import { createServer as createHttp2Server, type ServerHttp2Session } from 'node:http2'
import { createServer, type Socket } from 'node:net'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { EtcdError, GRPC, openEtcd } from '#functions/etcd/client'
import { SOON, TestEtcd } from '../../../support/etcd.ts'

const refusal = async (call: Promise<unknown>): Promise<EtcdError> => {
  const error = await call.then(
    () => undefined,
    (error: unknown) => error,
  )
  expect(error).toBeInstanceOf(EtcdError)
  return error as EtcdError
}

describe('a client of etcd, at a real server', () => {
  let servers: TestEtcd
  beforeAll(async () => {
    servers = await TestEtcd.open()
    await servers.start('a')
    await servers.serves('a')
  })
  afterAll(() => servers[Symbol.asyncDispose]())

  it('is told the status and the members, with identifiers as text and numbers as numbers', async () => {
    using etcd = servers.open('a')
    const status = await etcd.call('status', {}, SOON)
    expect(status).toMatchObject({ version: expect.stringMatching(/^3\.7\./), isLearner: false, errors: [] })
    expect(status.leader).toBe(status.header.member_id)
    expect(status.raftIndex).toBeGreaterThan(0)
    const { members } = await etcd.call('memberList', { linearizable: true }, SOON)
    expect(members).toEqual([
      {
        ID: status.header.member_id,
        name: 'a',
        peerURLs: [servers.peerUrl('a')],
        clientURLs: [servers.clientUrl('a')],
        isLearner: false,
      },
    ])
    expect(members[0]?.ID).toMatch(/^\d{15,20}$/)
  })

  it('adds a learner, which nobody can promote before it runs, and removes it', async () => {
    using etcd = servers.open('a')
    const peerURLs = ['http://127.0.0.1:9']
    const { member } = await etcd.call('memberAdd', { peerURLs, isLearner: true }, SOON)
    expect(member).toMatchObject({ name: '', isLearner: true, peerURLs })
    expect(
      (await refusal(etcd.call('memberAdd', { peerURLs: ['http://127.0.0.1:8'], isLearner: true }, SOON))).text,
    ).toContain('too many learner members in cluster')
    expect((await refusal(etcd.call('memberPromote', { ID: member.ID }, SOON))).text).toContain(
      'which is in sync with leader',
    )
    expect((await etcd.call('memberRemove', { ID: member.ID }, SOON)).members).toHaveLength(1)
    const again = await refusal(etcd.call('memberRemove', { ID: member.ID }, SOON))
    expect(again.message).toBe('MemberRemove: etcdserver: member not found')
    expect(again.isUnknown).toBe(false)
  })

  it('streams a snapshot of several MiB that ends with the SHA-256 of all before', async () => {
    using etcd = servers.open('a')
    for (let at = 0; at < 8; at++)
      await etcd.call('put', { key: Buffer.from(`large-${at}`), value: Buffer.alloc(1024 * 1024, at) }, SOON)
    const blobs: Buffer[] = []
    for await (const { blob } of etcd.snapshot({ timeoutMs: 30_000 })) blobs.push(blob)
    const bytes = Buffer.concat(blobs)
    expect(bytes.length).toBeGreaterThan(8 * 1024 * 1024)
    expect(bytes.length % 512).toBe(32)
    expect(createHash('sha256').update(bytes.subarray(0, -32)).digest()).toEqual(bytes.subarray(-32))
  })

  it('may stop reading a snapshot, and calls again', async () => {
    using etcd = servers.open('a')
    for await (const { blob } of etcd.snapshot(SOON)) {
      expect(blob.length).toBeGreaterThan(0)
      break
    }
    expect(await etcd.call('range', { key: Buffer.from('large-1') }, SOON)).toMatchObject({ count: 1 })
  })

  it('says what etcd says of keys and alarms', async () => {
    using etcd = servers.open('a')
    const { kvs } = await etcd.call('range', { key: Buffer.from('large-1') }, SOON)
    expect(kvs[0]?.value.equals(Buffer.alloc(1024 * 1024, 1))).toBe(true)
    expect((await etcd.call('alarm', { action: 0 }, SOON)).alarms).toEqual([])
    const { compact_revision, hash } = await etcd.call('hashKV', {}, SOON)
    expect([compact_revision, hash > 0]).toEqual([-1, true])
  })

  it('ends a call when its signal is aborted, and the next one is not touched', async () => {
    using etcd = servers.open('a')
    const abort = new AbortController()
    const call = refusal(etcd.call('status', {}, { timeoutMs: 5000, signal: abort.signal }))
    abort.abort()
    expect((await call).text).toBe('the call was aborted')
    expect((await etcd.call('status', {}, SOON)).version).toBeTruthy()
  })

  it('gives up a member that is frozen, and connects again when it is back', async () => {
    servers.signal('a', 'SIGSTOP')
    using etcd = servers.open('a')
    const ask = () => refusal(etcd.call('status', {}, { timeoutMs: 300 }))
    // The signal takes a moment to arrive.
    const { code, isUnknown } = await vi.waitFor(ask, { timeout: 60_000 })
    expect([code, isUnknown]).toEqual([GRPC.deadlineExceeded, true])
    servers.signal('a', 'SIGCONT')
    expect((await etcd.call('status', {}, SOON)).version).toBeTruthy()
  })

  it('is told by text when a call has no answer because quorum is missing', async () => {
    await using lonely = await TestEtcd.open()
    await lonely.name('b')
    await lonely.start('a', { cluster: ['a', 'b'] })
    // Its port comes early, and answers nothing.
    const ask = async () => {
      using etcd = lonely.open('a')
      return await refusal(etcd.call('memberList', { linearizable: true }, { timeoutMs: 500 }))
    }
    await vi.waitFor(async () => expect((await ask()).isUnknown).toBe(true), { timeout: 60_000 })
  })
})

describe('a client of something else', () => {
  it('is refused where nothing listens', async () => {
    using etcd = openEtcd({ url: 'http://127.0.0.1:9' })
    const { code, text } = await refusal(etcd.call('status', {}, SOON))
    expect([code, text]).toEqual([GRPC.unavailable, 'connect ECONNREFUSED 127.0.0.1:9'])
    expect((await refusal(etcd.call('status', {}, SOON))).code).toBe(GRPC.unavailable)
  })

  it('gives up a server that takes connections and says nothing', async () => {
    const server = createServer()
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
    const { port } = server.address() as { port: number }
    using etcd = openEtcd({ url: `http://127.0.0.1:${port}` })
    expect((await refusal(etcd.call('status', {}, { timeoutMs: 200 }))).text).toBe('no answer within 200 ms')
    etcd.close()
    server.close()
  })

  it.each<[string, (session: ServerHttp2Session, socket: Socket | undefined) => void]>([
    ['is closed', (session) => session.destroy()],
    ['is reset', (_, socket) => socket?.resetAndDestroy()],
  ])('cannot tell the effect of a call whose connection %s', async (_, end) => {
    let socket: Socket | undefined
    const server = createHttp2Server().on('stream', ({ session }) => end(session as ServerHttp2Session, socket))
    server.on('connection', (one: Socket) => (socket = one))
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
    const { port } = server.address() as { port: number }
    using etcd = openEtcd({ url: `http://127.0.0.1:${port}` })
    const { isUnknown } = await refusal(etcd.call('memberRemove', { ID: '1' }, SOON))
    expect(isUnknown).toBe(true)
    server.close()
  })
})
