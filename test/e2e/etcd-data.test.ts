import { afterAll, describe, expect, it } from 'vitest'
import { openEtcd } from '#etcd'
import { EtcdBackup } from '#functions/etcd-backup'
import { EtcdRestore } from '#functions/etcd-restore'
import { resourcePath } from '#kube'
import { cacheDir } from '#local'
import { issueFrom, newAuthority } from '#pki'
import { Secret } from '#sdk'
import { NODE_IP } from '../../local/node/addresses.ts'
import { addFairleadImages } from '../support/fairlead-images.ts'
import { takeTurnInSoak } from '../support/node.ts'
import { BUCKET, startS3 } from '../support/object-stores.ts'
import { sharedEtcds } from './etcd-suite.ts'
import { createVolumes, LOCAL_CLAIM } from './etcd-volumes.ts'
import { EtcdWriter } from './etcd-writer.ts'
import { until } from './world.ts'

const turn = await takeTurnInSoak()
afterAll(turn.end)

const SLOW = { timeout: 600_000 }
const SOON = { timeoutMs: 5000 }
const authority = newAuthority({ cn: 'test' }, { now: new Date(), days: 1 })

describe.skipIf(turn.skip)('the data of an EtcdCluster on a real node', () => {
  const etcds = sharedEtcds()

  async function createSecrets(name: string): Promise<void> {
    const sans = [
      `*.${name}.default.svc`,
      `*.${name}.default.svc.cluster.local`,
      `${name}-client.default.svc`,
      'localhost',
    ]
    for (const [use, file] of [
      ['peer', 'peer'],
      ['server', 'server'],
      ['client', 'etcd-client'],
    ] as const) {
      const { certificate, privateKey } = issueFrom(
        authority,
        { subject: { cn: 'root' }, sans },
        { now: new Date(), days: 1 },
      )
      const key = privateKey.export({ type: 'pkcs8', format: 'pem' }) as string
      const stringData = {
        [`${file}.crt`]: certificate,
        [`${file}.key`]: key,
        [`${file}-ca.crt`]: authority.certificate,
      }
      const secret = { ...Secret.of({ metadata: { name: `${name}-${use}`, namespace: 'default' } }), stringData }
      await etcds.world.kube.create(resourcePath(Secret, 'default'), secret)
    }
  }
  it('has TLS between members and to clients, of the Secrets that it is given', SLOW, async () => {
    await using _kills = etcds.killing()
    await createSecrets('c')
    await etcds.create('c', {
      size: 3,
      TLS: {
        static: { member: { peerSecret: 'c-peer', serverSecret: 'c-server' }, operatorSecret: 'c-client' },
      },
    })
    const status = await etcds.settled('c', 3, 'create 3 with TLS')
    expect(Object.keys(status.versions ?? {})).toHaveLength(3)
    const [pod] = await etcds.pods('c')
    const url = `https://${(pod!.status as { podIP: string }).podIP}:2379`
    using stranger = openEtcd({ url, tls: { ca: authority.certificate, servername: 'x.c.default.svc' } })
    await expect(stranger.call('status', {}, { timeoutMs: 3000 })).rejects.toThrow('Status')
    await etcds.remove('c')
  })

  it(
    'keeps the data in volumes when all pods go at once, and removes the volume of a member that goes',
    SLOW,
    async () => {
      await using _kills = etcds.killing()
      await createVolumes(etcds.world, 8)
      await etcds.create('d', { size: 3, pod: { persistentVolumeClaimSpec: LOCAL_CLAIM } })
      const { clusterID } = await etcds.settled('d', 3, 'create 3 with volumes')
      const writer = new EtcdWriter(() => etcds.urls('d'))
      await until(() => writer.acknowledged.length > 10)
      const pods = await etcds.names('d')
      for (const name of pods) await etcds.kill(name)
      await until(async () => (await etcds.statusOf('d')).quorumLostSince !== undefined)
      const status = await etcds.settled('d', 3, 'all pods of three come back')
      expect(status.members?.ready).toEqual(pods)
      expect(status.clusterID).toBe(clusterID)
      await etcds.edit('d', { size: 1 })
      await etcds.settled('d', 1, 'resize to 1 with volumes')
      await until(async () => (await etcds.claims('d')).length === 1)
      await writer.stop()
      expect(await writer.missing()).toEqual([])
      await etcds.remove('d')
      await until(async () => (await etcds.claims('d')).length === 0)
    },
  )

  it('frees a full database, and takes writes again', SLOW, async () => {
    await using _kills = etcds.killing()
    await etcds.create('e', { size: 1, pod: { etcdEnv: [{ name: 'ETCD_QUOTA_BACKEND_BYTES', value: '16777216' }] } })
    await etcds.settled('e', 1, 'create 1')
    const [pod] = await etcds.pods('e')
    using etcd = openEtcd({ url: `http://${(pod!.status as { podIP: string }).podIP}:2379` })
    const put = () => etcd.call('put', { key: Buffer.from('k'), value: Buffer.alloc(1024 * 1024) }, { timeoutMs: 5000 })
    await until(() =>
      put().then(
        () => false,
        (error: Error) => error.message.includes('database space exceeded'),
      ),
    )
    const begin = performance.now()
    // An alarm causes no event: run now instead of in five minutes.
    await etcds.merge('e', { metadata: { annotations: { look: 'now' } } })
    await until(() =>
      put().then(
        () => true,
        () => false,
      ),
    )
    console.log(`space freed: ${((performance.now() - begin) / 1000).toFixed(1)} s`)
    await etcds.settled('e', 1, 'after it')
  })

  it('is replaced by a backup once that is verified, and the cluster keeps its name', SLOW, async () => {
    await using _kills = etcds.killing()
    await addFairleadImages(etcds.world.cluster.registryUrl!, cacheDir(process.env))
    await using s3 = await startS3({ host: NODE_IP })
    const secret = Secret.of({ metadata: { name: 'aws' } })
    await etcds.add(Secret, { ...secret, stringData: s3.secret })
    await etcds.create('f', { size: 3 })
    const { clusterID } = await etcds.settled('f', 3, 'create 3 to restore')
    const before = await etcds.names('f')
    const key = Buffer.from('key')
    const put = async (value: string) => {
      using client = openEtcd({ url: await etcds.urlOf('f') })
      await client.call('put', { key, value: Buffer.from(value) }, SOON)
    }
    await put('before')
    const source = { path: `${BUCKET}/f`, awsSecret: 'aws', endpoint: s3.url }
    const backup = { etcdEndpoints: [await etcds.urlOf('f')], storageType: 'S3' as const, s3: source }
    await etcds.add(EtcdBackup, EtcdBackup.of({ metadata: { name: 'f' }, spec: backup }))
    await until(async () => (await etcds.get(EtcdBackup, 'f')).status.succeeded === true)
    await put('after')
    const spec = { etcdCluster: { name: 'f' }, backupStorageType: 'S3', s3: source } as const
    await etcds.add(EtcdRestore, EtcdRestore.of({ metadata: { name: 'f' }, spec }))
    await until(async () => (await etcds.get(EtcdRestore, 'f')).status.succeeded === true)
    const status = await etcds.settled('f', 3, 'three members after a restore')
    expect(status.clusterID).not.toBe(clusterID)
    expect(status.restoredFrom).toBe((await etcds.get(EtcdRestore, 'f')).metadata.uid)
    expect((await etcds.names('f')).filter((name) => before.includes(name))).toEqual([])
    using client = openEtcd({ url: await etcds.urlOf('f') })
    const { kvs } = await client.call('range', { key }, SOON)
    expect(kvs.map(({ value }) => value.toString())).toEqual(['before'])
  })
})
