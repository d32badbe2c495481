import { Pod } from '#sdk'
import type { Scenario, Simulation } from '#testing'
import { atObject, podStatus } from './given.ts'

const NOW = '2030-01-01T00:00:00.000Z'
const SOON = '2030-01-01T00:01:00Z'

/** Kubelet ends the one pod that runs. */
export function end(world: Simulation, exitCode: number, reason?: string): void {
  const running = world.list(Pod).find(({ status }) => status?.phase !== 'Failed')
  const finishedAt = world.now.toISOString()
  const status = podStatus(exitCode === 0 ? 'Succeeded' : 'Failed', { exitCode, finishedAt, ...(reason && { reason }) })
  world.patch(Pod, { status }, running?.metadata.name)
}

const scenario = (spec: object, steps: Scenario['steps']): Scenario => ({
  objects: [atObject({ spec: { schedule: SOON, command: 'backup', ...spec } })],
  now: NOW,
  steps: steps ?? [],
})
const due = ['its time comes', (world: Simulation) => world.pass(60)] as const
const later = ['time passes', (world: Simulation) => world.pass(400)] as const
const ends = (code: number) => [`its pod ends with ${code}`, (world: Simulation) => end(world, code)] as const

/** What may happen to an At. */
export const scenarios = {
  'that succeeds': scenario({ ttlSecondsAfterFinished: 300 }, [due, ends(0), later]),
  'that fails': scenario({ backoffLimit: 1 }, [due, ends(3), later, ends(3), later]),
  'that takes too long': scenario({ activeDeadlineSeconds: 60 }, [due, later]),
  'that is edited': scenario({ startingDeadlineSeconds: 100, suspend: true }, [
    [
      ['it is resumed', (world) => world.edit({ spec: { suspend: false } })],
      ['its time moves', (world) => world.edit({ spec: { schedule: '2030-01-01T00:05:00Z' } })],
      ['its command changes', (world) => world.edit({ spec: { command: 'restore' } })],
    ],
    later,
    ['its pod is deleted', (world) => world.delete(Pod)],
    ends(0),
  ]),
  'that cannot be read': scenario({ schedule: 'tomorrow' }, [later]),
} satisfies Record<string, Scenario>
