import { describe, expect, it } from 'vitest'
import { etcd } from '#functions/etcd'
import { Pod } from '#sdk'
import { lawsOf, simulate } from '#testing'
import { cluster, type EtcdSimulation, etcdModel, kubelets } from './simulated.ts'

const NOW = '2030-01-01T00:00:00Z'
const options = (size: number) => ({
  objects: [cluster('ex', { size })],
  now: NOW,
  external: etcdModel(),
  cluster: (world: EtcdSimulation) => kubelets(world),
})
const resize = (size: number) => (world: EtcdSimulation) => world.edit({ spec: { size } })

/** Deletes so many pods, that of the leader last. */
function kill(count: number) {
  return (world: EtcdSimulation) => {
    const leader = world.object?.status?.leader
    const names = world.list(Pod).map(({ metadata }) => metadata.name)
    const order = names.toSorted((a, b) => Number(a === leader) - Number(b === leader) || (a < b ? -1 : 1))
    for (const name of order.slice(0, count)) world.delete(Pod, name)
  }
}

function askForRecovery(world: EtcdSimulation): void {
  const quorumLostSince = world.object?.status?.quorumLostSince
  if (quorumLostSince !== undefined) world.edit({ spec: { recovery: { quorumLostSince } } })
}

/** Leaves out the names of members, which count their replacements, and messages, which contain names. */
function endOf(world: EtcdSimulation): unknown {
  const { phase, size, members, conditions, currentVersion } = world.object?.status ?? {}
  const voters = world.external.all.at(-1)?.members.filter(({ isLearner }) => !isLearner).length
  return [
    { phase, size, currentVersion, voters, pods: world.list(Pod).length },
    [members?.ready.length, members?.unready.length, members?.learners.length],
    conditions?.map(({ type, status, reason }) => [type, status, reason]),
  ]
}

describe('an EtcdCluster that grows and loses a member', () => {
  it.each(
    lawsOf(etcd, {
      ...options(1),
      steps: [
        ['three members are wanted', resize(3)],
        ['a follower is lost', kill(1)],
        ['one member is wanted', resize(1)],
      ],
      endOf,
    }),
  )('%s', (_, holds) => holds())
})

describe('an EtcdCluster that loses its quorum', () => {
  it.each(
    lawsOf(etcd, {
      ...options(3),
      steps: [
        ['two members are lost', kill(2)],
        ['a recovery is asked for', askForRecovery],
      ],
      endOf,
    }),
  )('%s', (_, holds) => holds())

  it('ends with three members, and Events that tell of it', async () => {
    const world = simulate(etcd, options(3))
    await world.runUntilIdle()
    kill(2)(world)
    await world.runUntilIdle()
    askForRecovery(world)
    await world.runUntilIdle()
    await world.advance(60)
    expect(world.object?.status?.members?.ready).toHaveLength(3)
    expect(world.events.map(({ reason }) => reason)).toEqual(
      expect.arrayContaining(['QuorumLost', 'RecoveryStarted', 'Recovered']),
    )
  })
})

describe('an EtcdCluster at rest', () => {
  it('waits for no time, so that nothing runs before its resync; that reads once and writes nothing', async () => {
    const world = simulate(etcd, options(3))
    await world.runUntilIdle()
    expect(world.timer).toBeUndefined()
    const { length: runs } = world.inputs
    await world.advance(299)
    expect(world.inputs).toHaveLength(runs)
    const { length } = world.writes
    await world.run()
    expect([world.inputs.length - runs, world.writes.slice(length), world.timer]).toEqual([1, [], undefined])
  })
})
