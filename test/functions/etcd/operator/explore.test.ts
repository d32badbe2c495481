import { describe, expect, it } from 'vitest'
import { randomFrom } from '../../../support/random.ts'
import {
  type Change,
  crash,
  type Disturbance,
  diskGoes,
  explore,
  faultOf,
  lateEffect,
  nodeBlinks,
  nodeGoes,
  play,
  podGoes,
  type Scenario,
  staleRead,
} from './explore.ts'
import { restored, restoredLater, volumes } from './recovery.ts'
import type { Spec } from './world.ts'

/** Points that are passed over for each member. `FAIRLEAD_EXPLORE=0`: none, which takes hours. */
const SPARSE = Number(process.env['FAIRLEAD_EXPLORE'] ?? 120)

const toSize = (size: number): Change => [`size ${size}`, (world) => world.edit({ size })]
const toVersion = (version: string): Change => [`version ${version}`, (world) => world.edit({ version })]
const otherPolicy: Change = [
  'another policy',
  (world) => world.edit({ pod: { ...world.object.spec.pod, labels: { a: 'b' } } }),
]

const others: Disturbance[] = [crash, staleRead, lateEffect]
const onPods = (count: number, ...kinds: ((at: number) => Disturbance)[]): Disturbance[] =>
  kinds.flatMap((kind) => Array.from({ length: count }, (_, at) => kind(at)))

describe.each([
  ['without volumes', undefined],
  ['with volumes', volumes],
] as const)('an EtcdCluster %s', (_, pod) => {
  const spec = (size: number, more: Partial<Spec> = {}): Spec => ({ size, ...more, ...(pod && { pod }) })
  const scenarios: [string, Scenario][] = [
    ['is created with 1 member', { spec: spec(1) }],
    ['is created with 3 members', { spec: spec(3) }],
    ['is created with 4 members', { spec: spec(4) }],
    ['is created with 5 members', { spec: spec(5) }],
    ['grows from 1 to 3 and shrinks to 1', { spec: spec(1), changes: [toSize(3), toSize(1)] }],
    ['grows from 3 to 5 and shrinks to 2', { spec: spec(3), changes: [toSize(5), toSize(2)] }],
    ['goes up a version with 1 member', { spec: spec(1, { version: '3.6.16' }), changes: [toVersion('3.7.3')] }],
    ['goes up a version with 3 members', { spec: spec(3, { version: '3.6.16' }), changes: [toVersion('3.7.3')] }],
    ['gets another pod policy with 3 members', { spec: spec(3), changes: [otherPolicy] }],
    ['is restored with 3 members', { spec: spec(3), changes: [restored] }],
    [
      'is restored at another version, to which its 3 members cannot go',
      { spec: spec(3, { version: '3.5.32' }), changes: [toVersion('3.7.3'), restoredLater] },
    ],
    [
      'is restored with 3 members, when its version is set as the refusal advises',
      { spec: spec(3, { version: '3.6.10' }), changes: [restoredLater, toVersion('3.7.3')] },
    ],
    ['gets another pod policy with 1 member', { spec: spec(1), changes: [otherPolicy] }],
  ]

  it.each(scenarios)('%s, whatever happens once at any point', (name, scenario) => {
    const count = Math.max(scenario.spec.size, ...name.match(/\d/g)!.map(Number))
    const lost = pod === undefined ? [] : [diskGoes]
    const every = Math.max(1, Math.round(count === 1 ? SPARSE / 20 : SPARSE * count))
    const { ways, fault } = explore(
      scenario,
      [...others, ...onPods(count, podGoes, nodeGoes, nodeBlinks, ...lost)],
      every,
    )
    expect(fault).toBeUndefined()
    expect(ways).toBeGreaterThan(2)
  })

  it('ends as it should whatever happens again and again', () => {
    const random = randomFrom(7)
    const kinds = [...others, ...onPods(5, podGoes, nodeBlinks, ...(pod ? [diskGoes] : [nodeGoes]))]
    const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)]!
    for (let way = 0; way < 12; way++) {
      const scenario = {
        spec: spec(1 + Math.floor(random() * 5)),
        changes: [pick([toSize(1), toSize(3), toSize(5), otherPolicy])],
      }
      const strikes = new Map(Array.from({ length: 4 }, () => [Math.floor(random() * 150), pick(kinds)]))
      const { world } = play(scenario, strikes)
      const told = [...strikes].map(([at, { what }]) => `${what} at ${at}`).join(', ')
      expect([faultOf(world), told, scenario.spec.size]).toEqual([undefined, told, scenario.spec.size])
    }
  })
})
