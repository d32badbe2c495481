import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Etcd, type EtcdTls, openEtcd } from '#etcd'
import { resourcePath } from '#kube'
import { Secret } from '#sdk'
import { isSoak, takeTurnWithNode } from '../support/node.ts'
import { EtcdClusters } from './etcd-clusters.ts'
import { EtcdWriter } from './etcd-writer.ts'
import { until } from './world.ts'

const turn = await takeTurnWithNode()
afterAll(turn.end)

const SLOW = { timeout: 900_000 }
const SOON = { timeoutMs: 5000 }
const KEY = { key: Buffer.from('key') }

describe.skipIf(turn.skip)('an EtcdCluster that is its own authority, on a real node', () => {
  let etcds: EtcdClusters

  beforeAll(async () => {
    etcds = await EtcdClusters.start()
  }, 300_000)
  afterAll(() => etcds?.[Symbol.asyncDispose]())

  const secret = async (name: string): Promise<Record<string, string>> => {
    const { data = {} } = await etcds.get(Secret, name)
    return Object.fromEntries(Object.entries(data).map(([key, text]) => [key, Buffer.from(text, 'base64').toString()]))
  }
  async function tlsOf(cluster: string, use: 'client' | 'operator'): Promise<EtcdTls> {
    const files = await secret(`${cluster}-${use}-tls`)
    const [ca, cert, key] =
      use === 'client' ? ['ca.crt', 'tls.crt', 'tls.key'] : ['etcd-client-ca.crt', 'etcd-client.crt', 'etcd-client.key']
    const read = (name = ''): string => files[name] ?? ''
    return { ca: read(ca), cert: read(cert), key: read(key), servername: `any.${cluster}.default.svc` }
  }
  const urls = async (cluster: string): Promise<string[]> =>
    (await etcds.urls(cluster)).map((url) => url.replace('http:', 'https:'))
  const open = async (cluster: string, use: 'client' | 'operator'): Promise<Etcd> =>
    openEtcd({ url: (await urls(cluster))[0] ?? '', tls: await tlsOf(cluster, use) })

  it.each(['3.7.3', '3.6.16'])(
    'has certificates that etcd %s takes, and users once the certificate of the function is root',
    SLOW,
    async (version) => {
      const name = `h${version.replaceAll('.', '')}`
      await etcds.create(name, { size: 1, version, TLS: { auto: {} }, auth: { enabled: true } })
      const status = await etcds.settled(name, 1, `create 1 of ${version} with TLS and users`)
      expect([status.TLS?.phase, status.authEnabled]).toEqual(['Stable', true])
      using client = await open(name, 'client')
      await expect(client.call('range', KEY, SOON)).rejects.toThrow('permission denied')
      using root = await open(name, 'operator')
      expect((await root.call('authStatus', {}, SOON)).enabled).toBe(true)
      await etcds.edit(name, { auth: { enabled: false } })
      await until(async () => (await etcds.statusOf(name)).authEnabled === false)
      await client.call('range', KEY, SOON)
      await etcds.remove(name)
    },
  )

  it.skipIf(!isSoak)('gets another authority under a client that reads its Secret every 50 seconds', SLOW, async () => {
    const auto = { overlapMinutes: 1 }
    await etcds.create('g', { size: 3, TLS: { auto }, auth: { enabled: true } })
    await etcds.settled('g', 3, 'create 3 with TLS and users')
    using root = await open('g', 'operator')
    await root.call('userAdd', { name: 'client', password: '', options: { no_password: true } }, SOON)
    await root.call('userGrantRole', { user: 'client', role: 'root' }, SOON)
    let held: { tls: Promise<EtcdTls>; at: number } | undefined
    const writer = new EtcdWriter(
      () => urls('g'),
      () => {
        if (held === undefined || Date.now() - held.at > 50_000) held = { tls: tlsOf('g', 'client'), at: Date.now() }
        return held.tls
      },
    )
    await until(() => writer.acknowledged.length > 5)
    await etcds.kill((await etcds.names('g'))[0]!)
    await etcds.settled('g', 3, 'replace a member under TLS and users')
    const before = { ca: (await tlsOf('g', 'client')).ca, names: await etcds.names('g') }
    const begin = performance.now()
    await etcds.edit('g', { TLS: { auto: { ...auto, rotation: 1 } } })
    const phases = new Set<string>()
    await until(async () => {
      const { TLS } = await etcds.statusOf('g')
      if (TLS && !phases.has(TLS.phase))
        console.log(`${TLS.phase} after ${((performance.now() - begin) / 1000).toFixed(1)} s`)
      phases.add(TLS?.phase ?? '')
      return TLS?.authority === 2 && TLS.phase === 'Stable'
    })
    await etcds.settled('g', 3, 'after another authority')
    const after = { ca: (await tlsOf('g', 'client')).ca, names: await etcds.names('g') }
    expect(after.ca).not.toContain(before.ca)
    expect(after.names.filter((name) => before.names.includes(name))).toEqual([])
    await expect(etcds.get(Secret, 'g-ca-1')).rejects.toThrow()
    await writer.stop()
    expect(await writer.missing()).toEqual([])
    console.log(`${writer.acknowledged.length} values written, longest gap ${Math.round(writer.longestGapMs)} ms`)
  })

  it.skipIf(!isSoak)('has the same certificates again when somebody deletes their Secrets', SLOW, async () => {
    const before = [await secret('g-member-tls'), await secret('g-client-tls')]
    for (const name of ['g-member-tls', 'g-client-tls'])
      await etcds.world.kube.delete(resourcePath(Secret, 'default', name))
    await until(() => Promise.all([secret('g-member-tls'), secret('g-client-tls')]).catch(() => false))
    expect([await secret('g-member-tls'), await secret('g-client-tls')]).toEqual(before)
    await etcds.remove('g')
  })
})
