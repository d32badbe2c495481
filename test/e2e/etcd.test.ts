import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { EtcdCluster } from '#functions/etcd'
import { resourcePath } from '#kube'
import { Pod } from '#sdk'
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

  it('takes another version in place, the leader last', SLOW, async () => {
    await create('b', { size: 3, version: '3.6.16' })
    await settled('b', 3, 'create 3 of 3.6')
    const before = (await podsOf('b')).map(({ metadata }) => metadata.uid).sort()
    await edit('b', { version: '3.7.3' })
    const status = await settled('b', 3, 'another version')
    expect(status.currentVersion).toBe('3.7.3')
    expect((await podsOf('b')).map(({ metadata }) => metadata.uid).sort()).toEqual(before)
    expect(Object.values(status.versions ?? {})).toEqual(['3.7.3', '3.7.3', '3.7.3'])
  })
})
