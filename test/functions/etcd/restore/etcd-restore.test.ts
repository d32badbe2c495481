import type { V1EndpointSlice } from '@kubernetes/client-node'
import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { EtcdRestore, etcdRestore, restoreContainer } from '#functions/etcd/restore'
import { kind, Pod } from '#sdk'
import { lawsOf, type Simulation, simulate } from '#testing'
import { withParts } from '../../../../functions/etcd/operator/restoration.ts'
import { endAgent, podsOf, STORED } from '../backup/agent.ts'

const Cluster = kind({
  group: 'etcd.database.coreos.com',
  version: 'v1beta2',
  kind: 'EtcdCluster',
  plural: 'etcdclusters',
})
const NOW = '2030-01-01T00:00:00.000Z'

const example = EtcdRestore.of({
  metadata: { name: 'prod', namespace: 'default' },
  spec: {
    etcdCluster: { name: 'prod' },
    backupStorageType: 'S3',
    s3: { path: 'bucket/etcd/prod', awsSecret: 'aws' },
  },
})
const cluster = (version = '3.7.3'): KubeObject => ({
  apiVersion: 'etcd.database.coreos.com/v1beta2',
  kind: 'EtcdCluster',
  metadata: { name: 'prod', namespace: 'default' },
  spec: { size: 3, version },
})
const simulated = (...others: KubeObject[]) => simulate(etcdRestore, { objects: [example, ...others], now: NOW })
type World = ReturnType<typeof simulated>

const readyOf = ({ object }: World) => object?.status?.conditions?.find(({ type }) => type === 'Ready')
const Slice = kind<V1EndpointSlice>({
  group: 'discovery.k8s.io',
  version: 'v1',
  kind: 'EndpointSlice',
  plural: 'endpointslices',
})
/** The addresses of a Service of the cluster. */
const endpoints = (service: string, member: string, ready: boolean): KubeObject => ({
  apiVersion: 'discovery.k8s.io/v1',
  kind: 'EndpointSlice',
  metadata: {
    name: `${service}-${member}`,
    namespace: 'default',
    labels: { app: 'etcd', etcd_cluster: 'prod', 'kubernetes.io/service-name': service },
  },
  addressType: 'IPv4',
  endpoints: [{ addresses: ['10.0.0.1'], conditions: { ready }, targetRef: { kind: 'Pod', name: member } }],
})
/** The first member has answered, and these members are ready. */
function answered(world: Simulation, ready: string[]): void {
  const status = { restoredFrom: world.object?.metadata.uid, serviceName: 'prod-client', members: { ready } }
  world.patch(Cluster, { status }, 'prod')
}
function restored(world: Simulation): void {
  answered(world, ['prod-new'])
  if (world.list(Slice).length === 0) world.create(endpoints('prod-client', 'prod-new', true))
}

describe('a restore', () => {
  it('reads the snapshot first, then waits for the cluster, then has succeeded', async () => {
    const world = simulated(cluster())
    await world.runUntilIdle()
    expect(readyOf(world)?.reason).toBe('Verifying')
    expect(world.object?.status?.verified).toBe(undefined)
    endAgent(world, STORED)
    await world.runUntilIdle()
    expect(world.object?.status).toMatchObject({ succeeded: false, verified: STORED })
    expect(readyOf(world)?.reason).toBe('Restoring')
    restored(world)
    await world.runUntilIdle()
    expect(world.object?.status).toMatchObject({ succeeded: true, verified: STORED })
    expect(readyOf(world)).toMatchObject({ status: 'True', reason: 'Restored' })
    expect(podsOf(world)).toHaveLength(1)
  })

  it('does nothing any more when it has succeeded, also if the cluster is restored from another one', async () => {
    const world = simulated(cluster())
    await world.runUntilIdle()
    endAgent(world, STORED)
    await world.runUntilIdle()
    restored(world)
    await world.runUntilIdle()
    const { length } = world.writes
    world.patch(Cluster, { status: { restoredFrom: 'another' } }, 'prod')
    await world.runUntilIdle()
    await world.advance(1_000_000)
    expect(world.writes.slice(length)).toEqual([])
  })

  it('says nothing of a snapshot that is damaged, so that the cluster stays as it is; and tries again', async () => {
    const world = simulated(cluster())
    await world.runUntilIdle()
    endAgent(world, { error: 'it is damaged' })
    await world.runUntilIdle()
    expect(world.object?.status).toMatchObject({ succeeded: false, reason: 'it is damaged' })
    expect(world.object?.status?.verified).toBe(undefined)
    await world.advance(10)
    endAgent(world, STORED)
    await world.runUntilIdle()
    expect(world.object?.status).toMatchObject({ verified: STORED })
    expect(world.object?.status?.reason).toBe(undefined)
  })

  it('refuses data of a later minor version than the cluster is to run', async () => {
    const world = simulated(cluster('3.6.16'))
    await world.runUntilIdle()
    endAgent(world, STORED)
    await world.runUntilIdle()
    expect(world.object?.status?.verified).toBe(undefined)
    expect(world.object?.status?.reason).toBe(
      's3://bucket/etcd/prod is of etcd 3.7.3, and spec.version of the EtcdCluster is 3.6.16: set that to 3.7.3 first',
    )
  })

  it.each([
    ['3.10.0', '3.9.0'],
    ['3.7.0', '3.7.3'],
    ['3.6.0', undefined],
  ])('takes data of a cluster of %s, and of an unknown version: %s', async (version, etcdVersion) => {
    const world = simulated(cluster(version))
    await world.runUntilIdle()
    endAgent(world, { ...STORED, etcdVersion })
    await world.runUntilIdle()
    expect(world.object?.status?.verified?.sha256).toBe(STORED.sha256)
  })

  it('has succeeded only when a member of the new cluster is ready and the Service for clients leads to it', async () => {
    const world = simulated(cluster())
    await world.runUntilIdle()
    endAgent(world, STORED)
    await world.runUntilIdle()
    const isTold = async (what: () => void): Promise<boolean | undefined> => {
      what()
      await world.runUntilIdle()
      return world.object?.status?.succeeded
    }
    const told = [
      await isTold(() => world.create(endpoints('prod-client', 'prod-former', true))),
      await isTold(() => answered(world, [])),
      await isTold(() => answered(world, ['prod-new'])),
      await isTold(() => world.create(endpoints('prod', 'prod-new', true))),
      await isTold(() => world.create(endpoints('prod-client', 'prod-new', false))),
    ]
    expect(told).toEqual([false, false, false, false, false])
    expect(readyOf(world)).toMatchObject({
      status: 'False',
      reason: 'Restoring',
      message:
        'EtcdCluster prod has the data of s3://bucket/etcd/prod; Service prod-client leads to no ready member yet',
    })
    const { endpoints: ready } = Slice.parse(endpoints('prod-client', 'prod-new', true))
    expect(await isTold(() => world.patch(Slice, { endpoints: ready }, 'prod-client-prod-new'))).toBe(true)
  })

  it('is for the EtcdCluster for which the snapshot was verified, and not for a later one of its name', async () => {
    const world = simulated(cluster())
    await world.runUntilIdle()
    endAgent(world, STORED)
    await world.runUntilIdle()
    expect(world.object?.status?.clusterUID).toBe(world.list(Cluster)[0]?.metadata.uid)
    world.delete(Cluster, 'prod')
    world.create(cluster())
    await world.runUntilIdle()
    expect(readyOf(world)).toMatchObject({ status: 'False', reason: 'OtherCluster' })
    expect(readyOf(world)?.message).toContain('delete EtcdRestore prod, and create it again')
  })

  it('names the obstacle if spec.version is set back before the restore begins, and not afterwards', async () => {
    const world = simulated(cluster())
    await world.runUntilIdle()
    endAgent(world, STORED)
    await world.runUntilIdle()
    world.patch(Cluster, { spec: { version: '3.6.16' } }, 'prod')
    await world.runUntilIdle()
    expect(readyOf(world)).toMatchObject({ reason: 'SnapshotTooNew', message: expect.stringContaining('is 3.6.16') })
    world.patch(Cluster, { status: { restoring: world.object?.metadata.uid } }, 'prod')
    await world.runUntilIdle()
    expect(readyOf(world)?.reason).toBe('Restoring')
  })

  it('waits for its cluster', async () => {
    const world = simulated()
    await world.runUntilIdle()
    expect(podsOf(world)).toEqual([])
    expect(readyOf(world)).toMatchObject({ reason: 'NoCluster', message: 'there is no EtcdCluster prod: create it' })
    world.create(cluster())
    await world.runUntilIdle()
    expect(podsOf(world)).toHaveLength(1)
  })
})

describe('the container that restores', () => {
  const seed = {
    name: 'prod-abc',
    peerUrl: 'http://prod-abc.prod.default.svc:2380',
    token: 'cluster-1',
    dataDir: '/var/etcd/data',
    volume: 'etcd-data',
    mountPath: '/var/etcd',
  }

  it('takes these bytes and no others, and raises the revision', async () => {
    const world = simulated(cluster())
    await world.runUntilIdle()
    endAgent(world, STORED)
    await world.runUntilIdle()
    const { initContainer, volumes } = restoreContainer(EtcdRestore.parse(world.object as KubeObject), seed)!
    expect(initContainer.args).toEqual(
      expect.arrayContaining([
        'restore',
        `--sha256=${STORED.sha256}`,
        '--token=cluster-1',
        '--bump-revision=1000000000',
      ]),
    )
    expect(initContainer.volumeMounts).toContainEqual({ name: 'etcd-data', mountPath: '/var/etcd' })
    expect(volumes.map(({ secret }) => secret?.secretName)).toEqual(['aws'])
  })

  it('has the identity of the ServiceAccount of the EtcdRestore without a Secret of the store', async () => {
    const abs = { path: 'c/k', endpoint: 'https://a.blob.core.windows.net' }
    const spec = { etcdCluster: { name: 'prod' }, backupStorageType: 'ABS', abs, agentServiceAccount: 'backups' }
    const { verified } = { verified: { path: 'abs://c/k', size: 1, sha256: 'a', etcdRevision: 1 } }
    const restore = { ...example, metadata: { name: 'prod' }, spec, status: { verified } }
    const parts = restoreContainer(EtcdRestore.parse(restore), seed)!
    expect(parts).toMatchObject({
      volumes: [],
      serviceAccount: 'backups',
      labels: { 'azure.workload.identity/use': 'true' },
    })
    const pod = withParts(
      Pod.of({ metadata: { name: 'prod-abc', labels: { app: 'etcd' } }, spec: { containers: [] } }),
      parts,
    )
    expect(pod.metadata.labels).toEqual({ app: 'etcd', 'azure.workload.identity/use': 'true' })
    expect(pod.spec?.serviceAccountName).toBe('backups')
  })

  it('is none before the snapshot was read to its end', () => {
    expect(restoreContainer(EtcdRestore.parse({ ...example, metadata: { name: 'prod' } }), seed)).toBe(undefined)
  })
})

describe('laws', () => {
  it.each(
    lawsOf(etcdRestore, {
      objects: [example, cluster()],
      now: NOW,
      steps: [
        ['the check fails', (world) => endIfRunning(world, { error: 'no' })],
        ['time passes', (world) => world.pass(10)],
        ['the check succeeds', (world) => endIfRunning(world, STORED)],
        ['the cluster is restored', (world) => restored(world)],
      ],
    }),
  )('%s', (_, holds) => holds())
})

function endIfRunning(world: Simulation<typeof EtcdRestore>, report: object): void {
  if (world.list(Pod).some(({ status }) => status?.phase === undefined)) endAgent(world, report)
}
