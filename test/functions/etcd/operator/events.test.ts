import { describe, expect, it } from 'vitest'
import { type Change, play } from './explore.ts'
import { loses, recovers, restored } from './recovery.ts'
import type { EtcdWorld, Spec } from './world.ts'

const COMES = ['NewMemberAdded', 'MemberPromoted']
const killsFollower: Change = [
  'a follower is killed',
  (world) => world.killPod(world.etcd.voters.find(({ id }) => id !== world.etcd.leader?.id)!.name),
]
const edits = (spec: Partial<Spec>): Change => ['an edit', (world) => world.edit(spec)]

/** Reasons of the Events of the last change. */
function eventsOf(spec: Spec, ...changes: Change[]): string[] {
  let from = 0
  const marked = changes.map(
    ([what, change], at): Change => [
      what,
      (world) => {
        if (at === changes.length - 1) from = world.events.length
        change(world)
      },
    ],
  )
  const { world } = play({ spec, changes: marked })
  expect(world.broken).toEqual([])
  return world.events.slice(from).map(({ reason }) => reason)
}
const told = (world: EtcdWorld, reason: string) => world.events.find((event) => event.reason === reason)

describe('Events of an EtcdCluster', () => {
  it.each<[string, Spec, Change[], string[]]>([
    ['its creation', { size: 3 }, [], ['ClusterFormed', ...COMES, ...COMES]],
    ['a dead member', { size: 3 }, [killsFollower], ['ReplacingDeadMember', 'MemberRemoved', ...COMES]],
    ['a smaller size', { size: 3 }, [edits({ size: 1 })], ['MemberRemoved', 'MemberRemoved']],
    [
      'another version',
      { size: 3, version: '3.6.16' },
      [edits({ version: '3.7.3' })],
      ['MemberUpgraded', 'MemberUpgraded', 'MemberUpgraded', 'Upgraded'],
    ],
    [
      'a version that is refused',
      { size: 1, version: '3.6.16' },
      [edits({ version: '3.8.0' })],
      ['VersionPathNotSupported'],
    ],
    ['a lost quorum', { size: 3 }, [loses(2)], ['QuorumLost']],
    [
      'a recovery',
      { size: 3 },
      [loses(2), recovers],
      ['RecoveryStarted', 'ClusterFormed', 'Recovered', ...COMES, ...COMES],
    ],
    [
      'a recovery that is refused',
      { size: 3 },
      [edits({ recovery: { quorumLostSince: 'never' } })],
      ['RecoveryRefused'],
    ],
    ['a restore', { size: 3 }, [restored], ['RestoreStarted', 'ClusterFormed', 'Restored', ...COMES, ...COMES]],
  ])('tell of %s, each once and in order', (_, spec, changes, reasons) => {
    expect(eventsOf(spec, ...changes)).toEqual(reasons)
  })

  it('name the member, and say what may be done where something is wrong', () => {
    const { world } = play({ spec: { size: 3 }, changes: [killsFollower, loses(2)] })
    expect(told(world, 'ReplacingDeadMember')).toMatchObject({
      type: 'Warning',
      message: expect.stringMatching(/^member ex-\w+ is dead/),
    })
    expect(told(world, 'MemberRemoved')).toMatchObject({
      type: 'Normal',
      message: expect.stringMatching(/^member ex-\w+ was removed$/),
    })
    expect(told(world, 'QuorumLost')?.message).toContain('restore a backup')
  })

  it('are none while nothing happens', () => {
    const { world } = play({ spec: { size: 3 } })
    const { length } = world.events
    world.run()
    world.pass()
    world.run()
    expect(world.events).toHaveLength(length)
  })
})
