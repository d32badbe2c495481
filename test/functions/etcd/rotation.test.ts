import { describe, expect, it } from 'vitest'
import { faultOf, play } from './explore.ts'

describe('TLS', () => {
  it('first', () => {
    const t0 = performance.now()
    const { world, points } = play({ spec: { size: 3, TLS: { auto: { overlapMinutes: 1 } } }, changes: [['rotation', (world) => world.edit({ TLS: { auto: { overlapMinutes: 1, rotation: 1 } } })]] })
    console.log(points, world.etcd.now, performance.now() - t0, JSON.stringify(world.stored.status['TLS']), [...world.stored.secrets.keys()], world.stored.conditions, world.broken)
    expect(faultOf(world)).toBeUndefined()
  })
})
