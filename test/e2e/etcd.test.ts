import { chown, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { openEtcd } from '#etcd'
import { EtcdCluster } from '#functions/etcd'
import { resourcePath } from '#kube'
import { issueFrom, newAuthority } from '#pki'
import { PersistentVolumeClaim, Pod, Secret } from '#sdk'
import { addEtcdImages } from '../../deploy/images/etcd/index.ts'
import { takeTurnWithNode } from '../support/node.ts'
import { type Replica, startReplicas } from './chaos.ts'
import { EtcdWriter } from './etcd-writer.ts'
import { startWorld, until, type World, whileAway } from './world.ts'

const turn = await takeTurnWithNode()
afterAll(turn.end)

type Spec = Parameters<typeof EtcdCluster.of>[0]['spec']
const SLOW = { timeout: 600_000 }

describe.skipIf(turn.skip)('an EtcdCluster on a real node', () => {
  let world: World
  let replicas: Replica[] & AsyncDisposable

  beforeAll(async () => {
    world = await startWorld({ node: 'real', controllers: true })
    await addEtcdImages(world.cluster.registryUrl!)
    await world.cluster.restart('kube-controller-manager')
    replicas = await startReplicas(world, 2)
  }, 300_000)
  afterAll(async () => {
    await replicas?.[Symbol.asyncDispose]()
    await world?.[Symbol.asyncDispose]()
  })

  const path = (name: string) => resourcePath(EtcdCluster, 'default', name)
  const get = async (name: string) => EtcdCluster.parse(await whileAway(() => world.kube.get<KubeObject>(path(name))))
  const create = (name: string, spec: Spec) => {
    const policy = { busyboxImage: 'busybox', ...spec.pod }
    const object = EtcdCluster.of({ metadata: { name, namespace: 'default' }, spec: { ...spec, pod: policy } })
    return world.kube.create(resourcePath(EtcdCluster, 'default'), object)
  }
  const edit = (name: string, spec: object) => whileAway(() => world.kube.patch(path(name), { spec }, 'merge'))
  const podsOf = async (name: string) => {
    const pods = await world.pods()
    return pods.filter(
      ({ metadata }) => metadata.labels?.['etcd_cluster'] === name && metadata.deletionTimestamp === undefined,
    )
  }
  const remove = (name: string) => whileAway(() => world.kube.delete(path(name)))
  const claimsOf = async (name: string) => {
    const all: KubeObject[] = []
    for await (const { items } of world.kube.list<KubeObject>(resourcePath(PersistentVolumeClaim, 'default')))
      all.push(...items)
    return all.filter(({ metadata }) => metadata.labels?.['etcd_cluster'] === name)
  }
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
      await world.kube.create(resourcePath(Secret, 'default'), secret)
    }
  }
  async function createVolumes(count: number): Promise<void> {
    for (let at = 0; at < count; at++) {
      const folder = join(world.cluster.dir, `volume-${at}`)
      await mkdir(folder)
      await chown(folder, 1000, 1000)
      const spec = {
        capacity: { storage: '1Gi' },
        accessModes: ['ReadWriteOnce'],
        storageClassName: 'local',
        hostPath: { path: folder },
      }
      const volume = { apiVersion: 'v1', kind: 'PersistentVolume', metadata: { name: `volume-${at}` }, spec }
      await world.kube.create(resourcePath({ group: '', version: 'v1', resource: 'persistentvolumes' }), volume)
    }
  }
  const kill = (name: string) =>
    world.kube.delete(resourcePath(Pod, 'default', name), { gracePeriodSeconds: 0 } as never)

  /** Its status, as soon as it has so many members and nothing is left to do. Prints how long that took. */
  async function settled(name: string, size: number, what: string, without?: string) {
    const begin = performance.now()
    let status: Awaited<ReturnType<typeof get>>['status'] = {}
    await until(async () => {
      const { metadata, status: now } = await get(name)
      status = now
      const ready = status.conditions?.find(({ type }) => type === 'Ready')
      const isSettled = ready?.status === 'True' && ready.observedGeneration === metadata.generation
      const { ready: names = [] } = status.members ?? {}
      return isSettled && names.length === size && status.size === size && !names.includes(without ?? '')
    })
    console.log(`${what}: ${((performance.now() - begin) / 1000).toFixed(1)} s`)
    return status
  }

  it('has three members that know each other, and a client reaches them', SLOW, async () => {
    await create('a', { size: 3 })
    const status = await settled('a', 3, 'create 3')
    const pods = (await podsOf('a')).map(({ metadata }) => metadata.name).sort()
    expect(status).toMatchObject({
      phase: 'Running',
      currentVersion: '3.7.3',
      serviceName: 'a-client',
      clientPort: 2379,
    })
    expect(status.members?.ready).toEqual(pods)
    expect(pods).toContain(status.leader)
  })

  it(
    'replaces a member that is killed, and the leader, and loses nothing that a client was told is written',
    SLOW,
    async () => {
      const writer = new EtcdWriter(() => podsOf('a'))
      const { leader, members } = (await get('a')).status
      const follower = members!.ready.find((one) => one !== leader)!
      await kill(follower)
      await settled('a', 3, 'replace a follower', follower)
      const { leader: now } = (await get('a')).status
      await kill(now!)
      await settled('a', 3, 'replace the leader', now)
      await writer.stop()
      expect(await writer.missing()).toEqual([])
      expect(writer.acknowledged.length).toBeGreaterThan(20)
    },
  )

  it('grows and shrinks under a client while one of two dispatchers is killed again and again', SLOW, async () => {
    const writer = new EtcdWriter(() => podsOf('a'))
    const stop = new AbortController()
    const chaos = (async () => {
      while (!stop.signal.aborted) {
        await new Promise((resolve) => setTimeout(resolve, 4000))
        await replicas[0]!.kill()
        replicas[0]!.start()
      }
    })()
    for (const size of [5, 1, 3]) {
      await edit('a', { size })
      await settled('a', size, `resize to ${size}`)
    }
    stop.abort()
    await chaos
    await writer.stop()
    expect(await writer.missing()).toEqual([])
    console.log(`${writer.acknowledged.length} values written, longest gap ${Math.round(writer.longestGapMs)} ms`)
  })

  it('gets another pod policy by new members, and keeps its data', SLOW, async () => {
    const writer = new EtcdWriter(() => podsOf('a'))
    const before = (await podsOf('a')).map(({ metadata }) => metadata.name)
    await edit('a', { pod: { labels: { team: 'red' } } })
    await settled('a', 3, 'another pod policy')
    const pods = await podsOf('a')
    expect(pods.filter(({ metadata }) => before.includes(metadata.name))).toEqual([])
    expect(pods.map(({ metadata }) => metadata.labels?.['team'])).toEqual(['red', 'red', 'red'])
    await writer.stop()
    expect(await writer.missing()).toEqual([])
  })

  it('does nothing while it is paused, and says when its quorum is lost, without deleting anything', SLOW, async () => {
    await edit('a', { paused: true })
    await until(async () => (await get('a')).status.controlPaused)
    const [one, two, three] = (await podsOf('a')).map(({ metadata }) => metadata.name)
    await kill(one!)
    await kill(two!)
    const { conditions = [], members } = await until(async () => {
      const { status } = await get('a')
      return status.conditions?.some(({ reason }) => reason === 'QuorumLost') ? status : undefined
    }).then(async () => (await get('a')).status)
    expect(conditions.find(({ type }) => type === 'Available')).toMatchObject({ status: 'False', reason: 'QuorumLost' })
    expect(members?.ready).toEqual([])
    await edit('a', { paused: false })
    await until(async () => (await get('a')).status.controlPaused === false)
    expect((await podsOf('a')).map(({ metadata }) => metadata.name)).toEqual([three])
    await remove('a')
  })

  it('takes another version in place, the leader last, and goes back', SLOW, async () => {
    await create('b', { size: 3, version: '3.6.16' })
    await settled('b', 3, 'create 3 of 3.6')
    const writer = new EtcdWriter(() => podsOf('b'))
    const before = (await podsOf('b')).map(({ metadata }) => metadata.uid).sort()
    for (const version of ['3.7.3', '3.6.16']) {
      await edit('b', { version })
      const status = await settled('b', 3, `another version, ${version}`)
      expect(status.currentVersion).toBe(version)
      expect((await podsOf('b')).map(({ metadata }) => metadata.uid).sort()).toEqual(before)
      expect(Object.values(status.versions ?? {})).toEqual([version, version, version])
    }
    await writer.stop()
    expect(await writer.missing()).toEqual([])
    await remove('b')
  })

  it('has TLS between members and to clients, of the Secrets that it is given', SLOW, async () => {
    await createSecrets('c')
    await create('c', {
      size: 3,
      TLS: {
        static: { member: { peerSecret: 'c-peer', serverSecret: 'c-server' }, operatorSecret: 'c-client' },
      },
    })
    const status = await settled('c', 3, 'create 3 with TLS')
    expect(Object.keys(status.versions ?? {})).toHaveLength(3)
    const [pod] = await podsOf('c')
    const url = `https://${(pod!.status as { podIP: string }).podIP}:2379`
    using stranger = openEtcd({ url, tls: { ca: authority.certificate, servername: 'x.c.default.svc' } })
    await expect(stranger.call('status', {}, { timeoutMs: 3000 })).rejects.toThrow()
    await remove('c')
  })

  it(
    'keeps the data in volumes when all pods go at once, and removes the volume of a member that goes',
    SLOW,
    async () => {
      await createVolumes(8)
      const claim = {
        accessModes: ['ReadWriteOnce'],
        storageClassName: 'local',
        resources: { requests: { storage: '1Mi' } },
      }
      await create('d', { size: 3, pod: { persistentVolumeClaimSpec: claim } })
      const { clusterID } = await settled('d', 3, 'create 3 with volumes')
      const writer = new EtcdWriter(() => podsOf('d'))
      await until(() => writer.acknowledged.length > 10)
      const pods = (await podsOf('d')).map(({ metadata }) => metadata.name).sort()
      for (const name of pods) await kill(name)
      await until(async () => (await get('d')).status.quorumLostSince !== undefined)
      const status = await settled('d', 3, 'all pods of three come back')
      expect(status.members?.ready).toEqual(pods)
      expect(status.clusterID).toBe(clusterID)
      await edit('d', { size: 1 })
      await settled('d', 1, 'resize to 1 with volumes')
      await until(async () => (await claimsOf('d')).length === 1)
      await writer.stop()
      expect(await writer.missing()).toEqual([])
      await remove('d')
      await until(async () => (await claimsOf('d')).length === 0)
    },
  )

  it('frees a full database, and takes writes again', SLOW, async () => {
    await create('e', { size: 1, pod: { etcdEnv: [{ name: 'ETCD_QUOTA_BACKEND_BYTES', value: '16777216' }] } })
    await settled('e', 1, 'create 1')
    const [pod] = await podsOf('e')
    using etcd = openEtcd({ url: `http://${(pod!.status as { podIP: string }).podIP}:2379` })
    const put = () => etcd.call('put', { key: Buffer.from('k'), value: Buffer.alloc(1024 * 1024) }, { timeoutMs: 5000 })
    await until(() =>
      put().then(
        () => false,
        (error: Error) => error.message.includes('database space exceeded'),
      ),
    )
    const begin = performance.now()
    // No event tells of an alarm: look now rather than in five minutes.
    await whileAway(() => world.kube.patch(path('e'), { metadata: { annotations: { look: 'now' } } }, 'merge'))
    await until(() =>
      put().then(
        () => true,
        () => false,
      ),
    )
    console.log(`space freed: ${((performance.now() - begin) / 1000).toFixed(1)} s`)
    await settled('e', 1, 'after it')
  })
})

const authority = newAuthority({ cn: 'test' }, { now: new Date(), days: 1 })
