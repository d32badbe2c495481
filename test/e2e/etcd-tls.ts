import { expect, it } from 'vitest'
import { EtcdBackup } from '#functions/etcd/backup'
import { type Etcd, type EtcdTls, openEtcd } from '#functions/etcd/client'
import { EtcdRestore } from '#functions/etcd/restore'
import { resourcePath } from '#kube'
import { cacheDir } from '#lab'
import { Secret } from '#sdk'
import { NODE_IP } from '../../packages/lab/node/options.ts'
import { addAgentImage } from '../support/fairlead-images.ts'
import { isSoak } from '../support/node.ts'
import { BUCKET, startS3 } from '../support/object-stores.ts'
import type { EtcdClusters } from './etcd-clusters.ts'
import { EtcdWriter } from './etcd-writer.ts'
import { until } from './world.ts'

const SLOW = { timeout: 900_000 }
const SOON = { timeoutMs: 5000 }
const KEY = { key: Buffer.from('key') }

export function tlsOnNode(etcds: EtcdClusters): void {
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
      await using _kills = etcds.killing()
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
    await using _kills = etcds.killing()
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
    const { leader } = await etcds.statusOf('g')
    await etcds.kill(leader!)
    await etcds.settled('g', 3, 'replace the leader under TLS and users', leader)
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
    await expect(etcds.get(Secret, 'g-ca-1')).rejects.toThrow('not found')
    await writer.stop()
    expect(await writer.missing()).toEqual([])
    console.log(`${writer.acknowledged.length} values written, longest gap ${Math.round(writer.longestGapMs)} ms`)
  })

  it.skipIf(!isSoak)('has the same certificates again when their Secrets are deleted', SLOW, async () => {
    await using _kills = etcds.killing()
    const before = [await secret('g-member-tls'), await secret('g-client-tls')]
    for (const name of ['g-member-tls', 'g-client-tls'])
      await etcds.world.kube.delete(resourcePath(Secret, 'default', name))
    await until(() => Promise.all([secret('g-member-tls'), secret('g-client-tls')]).catch(() => false))
    expect([await secret('g-member-tls'), await secret('g-client-tls')]).toEqual(before)
    await etcds.remove('g')
  })

  it('is refused together with Secrets of the user, and users are refused without TLS', async () => {
    const both = { auto: {}, static: { member: { peerSecret: 'p' } } }
    await expect(etcds.create('x', { size: 1, TLS: both })).rejects.toThrow(
      'spec.TLS.auto and spec.TLS.static exclude each other',
    )
    await expect(etcds.create('x', { size: 1, auth: { enabled: true } })).rejects.toThrow('auth needs TLS to clients')
  })

  it.skipIf(!isSoak)('is backed up and restored, and demands its users again', SLOW, async () => {
    await using _kills = etcds.killing()
    await addAgentImage(etcds.world.cluster.registryUrl ?? '', cacheDir(process.env))
    await using s3 = await startS3({ host: NODE_IP })
    await etcds.add(Secret, { ...Secret.of({ metadata: { name: 'aws' } }), stringData: s3.secret })
    await etcds.create('i', { size: 3, TLS: { auto: {} }, auth: { enabled: true } })
    const { clusterID } = await etcds.settled('i', 3, 'create 3 to restore')
    const put = async (value: string): Promise<void> => {
      using root = await open('i', 'operator')
      await root.call('put', { ...KEY, value: Buffer.from(value) }, SOON)
    }
    await put('before')
    const source = { path: `${BUCKET}/i`, awsSecret: 'aws', endpoint: s3.url }
    const backup = {
      etcdEndpoints: ['https://i-client.default.svc:2379'],
      storageType: 'S3' as const,
      s3: source,
      clientTLSSecret: 'i-operator-tls',
    }
    await etcds.add(EtcdBackup, EtcdBackup.of({ metadata: { name: 'i' }, spec: backup }))
    await until(async () => (await etcds.get(EtcdBackup, 'i')).status.succeeded === true)
    await put('after')
    const spec = { etcdCluster: { name: 'i' }, backupStorageType: 'S3', s3: source } as const
    await etcds.add(EtcdRestore, EtcdRestore.of({ metadata: { name: 'i' }, spec }))
    await until(async () => (await etcds.get(EtcdRestore, 'i')).status.succeeded === true)
    const status = await etcds.settled('i', 3, 'three members after a restore with users')
    expect([status.clusterID === clusterID, status.authEnabled]).toEqual([false, true])
    using client = await open('i', 'client')
    await expect(client.call('range', KEY, SOON)).rejects.toThrow('permission denied')
    using root = await open('i', 'operator')
    const { kvs } = await root.call('range', KEY, SOON)
    expect(kvs.map(({ value }) => value.toString())).toEqual(['before'])
    await etcds.remove('i')
  })
}
