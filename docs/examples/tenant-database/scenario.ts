import { Secret } from 'fairlead'
import { deploymentsRun, jobsRun, type Scenario } from 'fairlead/testing'
import { TenantDatabase } from './resource.ts'

export const NOW = '2030-01-01T00:00:00.000Z'

type Spec = Parameters<typeof TenantDatabase.of>[0]['spec']
export const tenant = (spec: Spec = {}) =>
  TenantDatabase.of({ metadata: { name: 'acme', namespace: 'default' }, spec: { teams: ['web', 'jobs'], ...spec } })

/** What may happen to a TenantDatabase. */
export const scenario: Scenario<typeof TenantDatabase> = {
  objects: [tenant()],
  now: NOW,
  cluster: [deploymentsRun, jobsRun({ seconds: 30 })],
  finalizeSeconds: 600,
  steps: [
    ['the migration ends', (world) => world.pass(30)],
    ['the hour of the backup comes', (world) => world.pass(7200)],
    [
      ['the plan grows', (world) => world.edit({ spec: { plan: 'large' } })],
      ['a team leaves', (world) => world.edit({ spec: { teams: ['jobs'] } })],
    ],
    ['a new version comes', (world) => world.edit({ spec: { version: '2' } })],
    ['its migration ends', (world) => world.pass(30)],
    ['the Secret is deleted', (world) => world.delete(Secret)],
  ],
}
