import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { etcd } from '#functions/etcd'
import { Pod } from '#sdk'
import { simulate } from '#testing'
import { cluster, type EtcdSimulation, etcdModel, kubelets } from './simulated.ts'

const NOW = '2030-01-01T00:00:00Z'
const pod = { persistentVolumeClaimSpec: { accessModes: ['ReadWriteOnce'] } }

function worldOf(name: string, others: readonly KubeObject[] = []): EtcdSimulation {
  return simulate(etcd, {
    objects: [cluster(name, { size: 3, pod }), ...others],
    now: NOW,
    external: etcdModel(),
    cluster: (world) => kubelets(world, name),
  })
}

/** All objects of a cluster at rest, the EtcdCluster among them. */
async function clusterAtRest(name: string): Promise<KubeObject[]> {
  const world = worldOf(name)
  await world.runUntilIdle()
  return world.memory.all()
}

const contents = (world: EtcdSimulation, of: readonly KubeObject[]) =>
  of.map((object) => {
    const { resourceVersion: _, ...metadata } = world.memory.find(object)?.metadata ?? { name: 'gone' }
    return { ...world.memory.find(object), metadata }
  })

describe('two EtcdClusters of one namespace', () => {
  it.each([
    ['a', 'b'],
    ['a', 'a-b'],
    ['a-b', 'a'],
  ])('do not touch what the other has: %s beside %s', async (name, other) => {
    const others = await clusterAtRest(other)
    const world = worldOf(name, others)
    const before = contents(world, others)
    const names = new Set(others.map(({ metadata }) => metadata.name))
    await world.runUntilIdle()
    for (const size of [5, 1, 3]) {
      world.edit({ spec: { size } })
      await world.runUntilIdle()
    }
    const own = world.list(Pod).filter(({ metadata }) => !names.has(metadata.name))
    expect([own.length, world.object?.status?.members?.ready]).toEqual([
      3,
      own.map(({ metadata }) => metadata.name).sort(),
    ])
    world.delete(Pod, own[0]?.metadata.name ?? '')
    await world.runUntilIdle()
    expect(contents(world, others)).toEqual(before)
    expect(world.writes.filter(({ object }) => names.has(object.metadata.name))).toEqual([])
    expect(world.effects.filter(({ via }) => names.has(String(via)))).toEqual([])
    world.delete()
    expect(contents(world, others)).toEqual(before)
    expect(world.list(Pod)).toHaveLength(3)
  })

  it('do not take the Service of the other, and the second one says whose it is', async () => {
    const others = await clusterAtRest('a')
    const world = worldOf('a-client', others)
    const before = contents(world, others)
    await world.runUntilIdle()
    expect(contents(world, others)).toEqual(before)
    const reconciled = world.object?.status?.conditions?.find(({ type }) => type === 'Reconciled')
    expect(reconciled).toMatchObject({ status: 'False', message: expect.stringContaining('Service default/a-client') })
  })
})
