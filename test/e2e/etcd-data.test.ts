import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { EtcdBackup } from '#functions/etcd/backup'
import { openEtcd } from '#functions/etcd/client'
import { EtcdRestore } from '#functions/etcd/restore'
import { resourcePath } from '#kube'
import { addImage, cacheDir, ensureBinaries, silentProgress } from '#lab'
import { issueFrom, newAuthority } from '#pki'
import { type ObservedBy, type Pod, Secret } from '#sdk'
import { Endpoints } from '../../functions/etcd/restore/etcd-restore.ts'
import { NODE_IP } from '../../packages/lab/node/options.ts'
import { addAgentImage } from '../support/fairlead-images.ts'
import { takeTurnInSoak } from '../support/node.ts'
import { BUCKET, startS3, type TestStore } from '../support/object-stores.ts'
import type { EtcdClusters } from './etcd-clusters.ts'
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

  it('is formed when the image of its first member is corrected, by the same pod', SLOW, async () => {
    await using _kills = etcds.killing()
    await etcds.create('h', { size: 1, version: '3.7.99' })
    await until(async () => {
      const [pod] = await etcds.pods('h')
      const { containerStatuses = [] } = (pod?.status as ObservedBy<typeof Pod>['status']) ?? {}
      return /^(ErrImagePull|ImagePullBackOff)$/.test(containerStatuses[0]?.state?.waiting?.reason ?? '')
    })
    const names = await etcds.names('h')
    await etcds.edit('h', { version: '3.7.3' })
    const { currentVersion } = await etcds.settled('h', 1, 'another image of the first member')
    expect([currentVersion, await etcds.names('h')]).toEqual(['3.7.3', names])
    await etcds.remove('h')
  })

  describe('and a backup', () => {
    const key = Buffer.from('key')
    let s3: TestStore
    beforeAll(async () => {
      const registryUrl = etcds.world.cluster.registryUrl!
      ;[s3] = await Promise.all([
        startS3({ host: NODE_IP }),
        addAgentImage(registryUrl, cacheDir(process.env)),
        addEarlierImage(registryUrl),
      ])
      const secret = Secret.of({ metadata: { name: 'aws' } })
      await etcds.add(Secret, { ...secret, stringData: s3.secret })
    }, 300_000)
    afterAll(() => s3?.[Symbol.asyncDispose]())

    const source = () => ({ path: `${BUCKET}/f`, awsSecret: 'aws', endpoint: s3.url })
    async function put(name: string, value: string): Promise<void> {
      using client = openEtcd({ url: await etcds.urlOf(name) })
      await client.call('put', { key, value: Buffer.from(value) }, SOON)
    }
    async function valuesIn(name: string): Promise<string[]> {
      using client = openEtcd({ url: await etcds.urlOf(name) })
      const { kvs } = await client.call('range', { key }, SOON)
      return kvs.map(({ value }) => value.toString())
    }
    const restore = (name: string) => {
      const spec = { etcdCluster: { name }, backupStorageType: 'S3', s3: source() } as const
      return etcds.add(EtcdRestore, EtcdRestore.of({ metadata: { name }, spec }))
    }
    const restoreIn = async (name: string) => (await etcds.get(EtcdRestore, name)).status
    const succeeds = (name: string) => until(async () => (await restoreIn(name)).succeeded === true)

    it('is replaced by it once that is verified, and the cluster keeps its name', SLOW, async () => {
      await using _kills = etcds.killing()
      await etcds.create('f', { size: 3 })
      const { clusterID } = await etcds.settled('f', 3, 'create 3 to restore')
      const before = await etcds.names('f')
      await put('f', 'before')
      const backup = { etcdEndpoints: [await etcds.urlOf('f')], storageType: 'S3' as const, s3: source() }
      await etcds.add(EtcdBackup, EtcdBackup.of({ metadata: { name: 'f' }, spec: backup }))
      await until(async () => (await etcds.get(EtcdBackup, 'f')).status.succeeded === true)
      await put('f', 'after')
      await restore('f')
      await succeeds('f')
      const status = await etcds.settled('f', 3, 'three members after a restore')
      expect(status.clusterID).not.toBe(clusterID)
      expect(status.restoredFrom).toBe((await etcds.get(EtcdRestore, 'f')).metadata.uid)
      expect((await etcds.names('f')).filter((name) => before.includes(name))).toEqual([])
      expect(await valuesIn('f')).toEqual(['before'])
      await etcds.remove('f')
    })

    it('of a later minor version changes nothing, until spec.version is what the refusal advises', SLOW, async () => {
      await using _kills = etcds.killing()
      await etcds.create('g', { size: 1, version: EARLIER })
      await etcds.settled('g', 1, 'create 1 of 3.6')
      await put('g', 'own')
      const names = await etcds.names('g')
      await restore('g')
      await until(async () => (await restoreIn('g')).reason !== undefined)
      const advice = /set that to (.*) first$/.exec((await restoreIn('g')).reason ?? '')?.[1]
      expect(advice).toBe('3.7.3')
      await etcds.edit('g', { version: advice })
      await until(async () => reasonIn(await etcds.statusOf('g'), 'Degraded') === 'VersionPathNotSupported')
      expect([await etcds.names('g'), await valuesIn('g')]).toEqual([names, ['own']])

      await etcds.world.kube.delete(resourcePath(EtcdRestore, 'default', 'g'))
      await restore('g')
      await succeeds('g')
      expect(await servedBy('g')).toEqual(await etcds.names('g'))
      const { currentVersion } = await etcds.settled('g', 1, 'one member after a restore at another version')
      expect([currentVersion, await valuesIn('g')]).toEqual(['3.7.3', ['before']])
    })

    it('is not the beginning of a later cluster of the name, though its EtcdRestore is still there', SLOW, async () => {
      await using _kills = etcds.killing()
      await etcds.remove('g')
      await until(async () => (await etcds.pods('g')).length === 0)
      await etcds.create('g', { size: 1 })
      await etcds.settled('g', 1, 'create 1 beside an EtcdRestore')
      expect([(await restoreIn('g')).succeeded, await valuesIn('g')]).toEqual([true, []])
    })

    /** The members that are ready, to which the Service for clients leads. */
    async function servedBy(name: string): Promise<string[]> {
      const found: string[] = []
      for await (const { items } of etcds.world.kube.list<KubeObject>(resourcePath(Endpoints, 'default')))
        for (const { metadata, endpoints = [] } of items.map((one) => Endpoints.parse(one)))
          if (metadata.labels?.['kubernetes.io/service-name'] === `${name}-client`)
            for (const { conditions, targetRef } of endpoints)
              if (conditions?.ready === true) found.push(targetRef?.name ?? '')
      return found
    }
  })
})

/** From this version members cannot go to 3.7, so that it takes a restore. Its image is that of a later patch. */
const EARLIER = '3.6.10'
async function addEarlierImage(registryUrl: string): Promise<void> {
  const binaries = await ensureBinaries(['etcd-3.6'], silentProgress)
  await addImage(registryUrl, `quay.io/coreos/etcd:v${EARLIER}`, {
    files: { 'usr/local/bin/etcd': { from: binaries('etcd-3.6') } },
    config: { Entrypoint: ['/usr/local/bin/etcd'] },
  })
}

const reasonIn = ({ conditions = [] }: Awaited<ReturnType<EtcdClusters['statusOf']>>, wanted: string) =>
  conditions.find(({ type }) => type === wanted)?.reason
