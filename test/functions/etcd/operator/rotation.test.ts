import { describe, expect, it } from 'vitest'
import {
  type Change,
  crash,
  type Disturbance,
  diskGoes,
  explore,
  faultOf,
  lateEffect,
  lateSecret,
  nodeBlinks,
  nodeGoes,
  play,
  podGoes,
  type Scenario,
  secretGoes,
  staleMount,
  staleRead,
  verifiedRestore,
} from './explore.ts'
import { daysPass, rotationMutations } from './rotation-mutations.ts'
import type { Spec } from './world.ts'

/** Points that are passed over. `FAIRLEAD_EXPLORE=0`: none, which takes hours. */
const SPARSE = Number(process.env['FAIRLEAD_EXPLORE'] ?? 120)

const tls = (rotation = 0): Pick<Spec, 'TLS'> => ({ TLS: { auto: { overlapMinutes: 1, rotation } } })
const rotation: Change = ['another authority', (world) => world.edit(tls(1))]
const volumes = { pod: { persistentVolumeClaimSpec: { accessModes: ['ReadWriteOnce'] } } }
const secrets = ['ex-ca-1', 'ex-ca-2', 'ex-member-tls', 'ex-operator-tls', 'ex-client-tls'].map(secretGoes)
const onPods = (count: number, ...kinds: ((at: number) => Disturbance)[]): Disturbance[] =>
  kinds.flatMap((kind) => Array.from({ length: count }, (_, at) => kind(at)))

describe('an EtcdCluster that is its own authority', () => {
  const scenarios: [string, every: number, Scenario][] = [
    ['1 member', SPARSE * 2, { spec: { size: 1, ...tls() }, changes: [rotation] }],
    ['3 members', SPARSE * 6, { spec: { size: 3, ...tls() }, changes: [rotation] }],
    ['3 members with volumes', SPARSE * 12, { spec: { size: 3, ...tls(), ...volumes }, changes: [rotation] }],
  ]

  it.each(scenarios)(
    'gets another authority, and no member or client is cut off, whatever happens: %s',
    (_, every, scenario) => {
      const others = [crash, staleRead, lateEffect, lateSecret, staleMount, ...secrets]
      const onMembers = onPods(
        scenario.spec.size,
        podGoes,
        nodeGoes,
        nodeBlinks,
        ...(scenario.spec.pod ? [diskGoes] : []),
      )
      const { ways, fault } = explore(scenario, [...others, ...onMembers], Math.max(1, every))
      expect(fault).toBeUndefined()
      expect(ways).toBeGreaterThan(2)
    },
  )

  it('issues its certificates again before they end, and grows meanwhile', () => {
    const changes = [29, 29, 29, 29, 29].flatMap((days, at): Change[] => [
      daysPass(days),
      ['another size', (world) => world.edit({ size: at % 2 ? 3 : 5 })],
    ])
    const { world } = play({ spec: { size: 3, ...tls() }, changes })
    expect([faultOf(world), world.broken]).toEqual([undefined, []])
    expect(world.object.status.TLS?.issuedAt).toMatch(/^2026-03-29/)
    expect(world.object.status.TLS?.authority).toBe(1)
  })

  it('gets another authority when the one that it has is old', () => {
    const spec = { size: 3, TLS: { auto: { overlapMinutes: 1, authorityDays: 90 } } }
    const { world } = play({ spec, changes: [25, 25, 25, 25].map(daysPass) })
    expect([faultOf(world), world.object.status.TLS?.trusted]).toEqual([undefined, [2]])
  })

  it('is restored where all Secrets are gone, and gets another authority by that', () => {
    const restore: Change = ['a verified snapshot', (world) => void (world.restore = verifiedRestore())]
    const gone: Change = ['all Secrets go', ({ stored }) => stored.secrets.clear()]
    const lost = play({ spec: { size: 3, ...tls() }, changes: [gone] }).world
    expect([lost.stored.conditions['Degraded']?.reason, lost.stored.secrets.size]).toEqual(['SecretsLost', 0])
    const { world } = play({ spec: { size: 3, ...tls() }, changes: [gone, restore] })
    expect([faultOf(world), world.object.status.TLS?.trusted]).toEqual([undefined, [2]])
  })

  it.each(rotationMutations)('has this guard: $guard', ({ scenario, disturbances, breaks, every = 1 }) => {
    const { subject: _, ...guarded } = scenario
    expect(explore(guarded, disturbances, 80).fault).toBeUndefined()
    expect(explore(scenario, disturbances, every).fault).toMatch(breaks)
  })
})
