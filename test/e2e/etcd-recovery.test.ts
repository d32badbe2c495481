import { isDeepStrictEqual } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { EtcdCluster } from '#functions/etcd'
import { openEtcd } from '#functions/etcd/client'
import { resourcePath } from '#kube'
import { cacheDir } from '#lab'
import { PersistentVolumeClaim, Service } from '#sdk'
import { addAgentImage } from '../support/fairlead-images.ts'
import { takeTurnInSoak } from '../support/node.ts'
import { cutOff, heal, putBeside } from './etcd-partition.ts'
import { sharedEtcds } from './etcd-suite.ts'
import { createVolumes, LOCAL_CLAIM } from './etcd-volumes.ts'
import { EtcdWriter } from './etcd-writer.ts'
import { until } from './world.ts'

const turn = await takeTurnInSoak()
afterAll(turn.end)

const SLOW = { timeout: 600_000 }
const SOON = { timeoutMs: 5000 }
const EVERYTHING = { key: Buffer.from([0]), range_end: Buffer.from([0]), serializable: true }

const EVENTS = { group: 'events.k8s.io', version: 'v1', resource: 'events' }
interface ToldEvent extends KubeObject {
  reason?: string
  regarding?: { name?: string }
}

describe.skipIf(turn.skip)('an EtcdCluster on a real node whose quorum is lost', () => {
  const etcds = sharedEtcds()

  beforeAll(async () => {
    await addAgentImage(etcds.world.cluster.registryUrl ?? '', cacheDir(process.env))
    await createVolumes(etcds.world, 12)
  })

  const serviceUids = async () => {
    const names = ['g', 'g-client']
    const services = await Promise.all(
      names.map((name) => etcds.world.kube.get(resourcePath(Service, 'default', name))),
    )
    return services.map((service) => (service as { metadata: { uid: string } }).metadata.uid)
  }
  /** What a cluster consists of. */
  const contentsOf = async (name: string) => {
    const uids = (await etcds.pods(name)).map(({ metadata }) => metadata.uid ?? '').sort()
    return { uids, clusterID: (await etcds.statusOf(name)).clusterID }
  }
  const reasonsOf = async (name: string) => {
    const reasons = new Set<string>()
    for await (const { items } of etcds.world.kube.list<ToldEvent>(resourcePath(EVENTS, 'default')))
      for (const { reason, regarding } of items) if (regarding?.name === name) reasons.add(reason ?? '')
    return reasons
  }
  const valuesAt = async (url: string) => {
    using client = openEtcd({ url })
    const { kvs, header } = await client.call('range', EVERYTHING, SOON)
    return { revision: header.revision, values: kvs.map(({ key, value }) => `${key}=${value}`) }
  }

  it('goes on from the member that is left, once that is asked for, with all that this member has', SLOW, async () => {
    await using _kills = etcds.killing()
    await etcds.create('g', { size: 3 })
    const { clusterID } = await etcds.settled('g', 3, 'create 3 to lose')
    await etcds.create('g-b', { size: 1 })
    await etcds.settled('g-b', 1, 'create 1 beside')
    const beside = await contentsOf('g-b')
    const { uid } = (await etcds.get(EtcdCluster, 'g')).metadata
    const services = await serviceUids()
    const writer = new EtcdWriter(() => etcds.urls('g'))
    await until(() => writer.acknowledged.length > 50)
    await writer.stop()
    const [survivor, ...others] = await etcds.names('g')
    for (const name of others) await etcds.kill(name)
    await until(async () => (await etcds.statusOf('g')).quorumLostSince !== undefined)
    const before = await valuesAt(await etcds.urlOf('g'))
    expect(before.values.length).toBeGreaterThan(0)
    expect(await etcds.names('g')).toEqual([survivor])

    const begin = performance.now()
    const { quorumLostSince } = await etcds.statusOf('g')
    await etcds.edit('g', { recovery: { quorumLostSince } })
    const status = await etcds.settled('g', 3, 'three members after a recovery', survivor)
    console.log(`recovered from the member that was left: ${((performance.now() - begin) / 1000).toFixed(1)} s`)
    expect(status).toMatchObject({ recovered: quorumLostSince, incarnation: 1, phase: 'Running' })
    expect(status.clusterID).not.toBe(clusterID)
    expect([status.recovering, status.quorumLostSince]).toEqual([undefined, undefined])
    for (const url of await etcds.urls('g')) {
      const { values, revision } = await valuesAt(url)
      expect(values).toEqual(before.values)
      expect(revision).toBeGreaterThan(1_000_000_000)
    }
    expect((await etcds.get(EtcdCluster, 'g')).metadata.uid).toBe(uid)
    expect(await serviceUids()).toEqual(services)
    expect(await contentsOf('g-b')).toEqual(beside)
    const told = ['NewMemberAdded', 'QuorumLost', 'RecoveryStarted', 'Recovered']
    await until(async () => new Set(told).isSubsetOf(await reasonsOf('g')))
  })

  it('is not recovered from a later loss by the same request, and says so', SLOW, async () => {
    await using _kills = etcds.killing()
    const [survivor, ...others] = await etcds.names('g')
    for (const name of others) await etcds.kill(name)
    await until(async () => {
      const { conditions = [], quorumLostSince } = await etcds.statusOf('g')
      const recovering = conditions.find(({ type }) => type === 'Recovering')
      return quorumLostSince !== undefined && recovering?.reason === 'WaitingForQuorum'
    })
    expect(await etcds.names('g')).toEqual([survivor])
    expect((await etcds.statusOf('g')).recovering).toBeUndefined()
  })

  it('goes on with a volume where those of the others are lost', SLOW, async () => {
    await using _kills = etcds.killing()
    await etcds.create('h', { size: 3, pod: { persistentVolumeClaimSpec: LOCAL_CLAIM } })
    await etcds.settled('h', 3, 'create 3 with volumes to lose')
    const writer = new EtcdWriter(() => etcds.urls('h'))
    await until(() => writer.acknowledged.length > 20)
    await writer.stop()
    await etcds.edit('h', { paused: true })
    await until(async () => (await etcds.statusOf('h')).controlPaused === true)
    const [survivor, ...others] = await etcds.names('h')
    for (const name of others) {
      await etcds.world.kube.delete(resourcePath(PersistentVolumeClaim, 'default', name))
      await etcds.kill(name)
    }
    await until(async () => (await etcds.claims('h')).length === 1)
    await etcds.edit('h', { paused: false })
    await until(async () => (await etcds.statusOf('h')).quorumLostSince !== undefined)
    const before = await valuesAt(await etcds.urlOf('h'))
    const { quorumLostSince } = await etcds.statusOf('h')
    await etcds.edit('h', { recovery: { quorumLostSince } })
    const status = await etcds.settled('h', 3, 'three members with volumes after a recovery', survivor)
    expect(status.recovered).toBe(quorumLostSince)
    await until(async () => {
      const claims = (await etcds.claims('h')).map(({ metadata }) => metadata.name).sort()
      return isDeepStrictEqual(claims, status.members?.ready)
    })
    for (const url of await etcds.urls('h')) expect((await valuesAt(url)).values).toEqual(before.values)
  })

  it('goes on with members that are Ready beyond a partition, and with what clients wrote to them', SLOW, async () => {
    await etcds.create('p', { size: 3, pod: { persistentVolumeClaimSpec: LOCAL_CLAIM } })
    const { clusterID } = await etcds.settled('p', 3, 'create 3 to part')
    const names = await etcds.names('p')
    const [left = '', ...others] = names
    const uidsOf = async () => new Set((await etcds.claims('p')).map(({ metadata }) => metadata.uid))
    const claims = await uidsOf()
    const addresses = new Map(
      (await etcds.pods('p')).map(({ metadata, status }) => [
        metadata.name,
        (status as { podIP?: string } | undefined)?.podIP ?? '',
      ]),
    )
    const addressesBut = (name: string) => [...addresses].filter(([one]) => one !== name).map(([, address]) => address)
    for (const name of others) await cutOff(name, addressesBut(name))
    await until(async () => (await etcds.statusOf('p')).quorumLostSince !== undefined)
    const { quorumLostSince } = await etcds.statusOf('p')
    // The new member cannot start before the others are back.
    await etcds.edit('p', { recovery: { quorumLostSince, agentImage: 'fairlead:missing' } })
    await until(async () => (await etcds.names('p')).length === 4)
    for (const name of others) await cutOff(name, [addresses.get(left) ?? ''])
    await until(async () => (await etcds.readyUrls('p')).length === others.length)
    await putBeside(others[0] ?? '', 'written', 'apart')

    await etcds.edit('p', { recovery: { agentImage: 'fairlead-etcd-agent:latest' } })
    await until(async () => {
      const { metadata, status } = await etcds.get(EtcdCluster, 'p')
      const recovering = status.conditions?.find(({ type }) => type === 'Recovering')
      const isStopped =
        recovering?.reason === 'FormerQuorumReady' && recovering.observedGeneration === metadata.generation
      return isStopped || status.recovered !== undefined
    })
    expect(await etcds.statusOf('p')).toMatchObject({ clusterID, recovering: quorumLostSince })
    await until(async () => isDeepStrictEqual(await etcds.names('p'), names))
    for (const name of others) await heal(name)
    const status = await etcds.settled('p', 3, 'three members after a partition')
    expect(status).toMatchObject({ clusterID, members: { ready: names } })
    expect([status.recovering, status.recovered, await uidsOf()]).toEqual([undefined, undefined, claims])
    for (const url of await etcds.urls('p')) expect((await valuesAt(url)).values).toEqual(['written=apart'])
  })
})
