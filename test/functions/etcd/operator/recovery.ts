import { type Change, type Scenario, verifiedRestore } from './explore.ts'
import type { EtcdWorld, Spec } from './world.ts'

export const volumes: Spec['pod'] = { persistentVolumeClaimSpec: { accessModes: ['ReadWriteOnce'] } }

/** Kills so many members, or cuts them off where they would come back with their volumes. */
export const loses = (count: number): Change => [
  `${count} members are lost`,
  (world) => {
    for (const name of namesOf(world).slice(-count)) lose(world, name)
  },
]

const namesOf = (world: EtcdWorld): string[] => world.lastingPods.map(({ metadata }) => metadata.name).sort()
const lose = (world: EtcdWorld, name: string): void => (world.hasVolumes ? world.cutOff(name) : world.killPod(name))

/** A user requests the recovery from the loss in the status. */
export const recovers: Change = [
  'a recovery',
  (world) => {
    const { quorumLostSince } = world.stored.status
    if (typeof quorumLostSince === 'string') world.edit({ recovery: { quorumLostSince } })
  },
]

/** After a loss. */
const ASKED_S = 3

/** They are cut off for so long, and a recovery is asked for meanwhile. */
export const isAway = (seconds: number): Change => [
  `two members are away for ${seconds} s`,
  (world) => {
    for (const name of namesOf(world).slice(-2)) {
      world.cutOff(name)
      world.later(seconds, () => world.reconnect(name))
    }
    world.later(ASKED_S, () => recovers[1](world))
  },
]

/** The members that are away come back to each other, and are cut off from the function and the third one for a minute. */
export const comeBackApart = (seconds: number): Change => [
  `two members are away for ${seconds} s, and then beyond a partition`,
  (world) => {
    const names = namesOf(world).slice(-2)
    isAway(seconds)[1](world)
    world.later(seconds, () => world.part(names))
    world.later(seconds + APART_S, () => world.part([]))
  },
]
const APART_S = 60

/** As before, but the members are lost again soon, so that the recovery goes on. */
export const comeBackShortly = (seconds: number): Change => [
  `two members are away for ${seconds} s, and are lost again`,
  (world) => {
    const names = namesOf(world).slice(-2)
    comeBackApart(seconds)[1](world)
    world.later(seconds + SHORTLY_S, () => {
      for (const name of names) world.cutOff(name)
    })
  },
]
const SHORTLY_S = 10

/** An EtcdRestore whose snapshot was read. */
export const restored: Change = ['a verified snapshot', (world) => void (world.restore = verifiedRestore())]

/** As restored, from a snapshot of a later minor version than 3.6. */
export const restoredLater: Change = [
  'a verified snapshot of 3.7.3',
  (world) => void (world.restore = verifiedRestore('3.7.3')),
]

const scenarioOf = (size: number, changes: Change[], pod?: Spec['pod']): Scenario => ({
  spec: { size, ...(pod && { pod }) },
  changes,
})

export const recoveries = (pod: Spec['pod'] | undefined): [string, Scenario][] => [
  ['is recovered when 1 of 2 is left', scenarioOf(2, [loses(1), recovers], pod)],
  ['is recovered when 1 of 3 is left', scenarioOf(3, [loses(2), recovers], pod)],
  ['is recovered when 2 of 5 are left', scenarioOf(5, [loses(3), recovers], pod)],
  ...[4, 5].map((seconds): [string, Scenario] => [
    `is recovered, or goes on, when 2 of 3 are away for ${seconds} s`,
    scenarioOf(3, [isAway(seconds)], pod),
  ]),
  ...[3, 4, 5, 6, 8].map((seconds): [string, Scenario] => [
    `is recovered, or goes on, when 2 of 3 come back after ${seconds} s beyond a partition`,
    scenarioOf(3, [comeBackApart(seconds)], pod),
  ]),
  [
    'is recovered when 2 of 3 come back beyond a partition and are lost again',
    scenarioOf(3, [comeBackShortly(4)], pod),
  ],
  [
    'is recovered with an authority of its own when 1 of 3 is left',
    { spec: { size: 3, TLS: { auto: {} }, ...(pod && { pod }) }, changes: [loses(2), recovers] },
  ],
]
