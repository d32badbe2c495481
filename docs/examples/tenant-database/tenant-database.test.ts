import { ConfigMap, Deployment, Job, NetworkPolicy, Secret, Service } from 'fairlead'
import { deploymentsRun, given, jobsRun, lawsOf, type SimulationOptions, simulate } from 'fairlead/testing'
import { describe, expect, it } from 'vitest'
import type { TenantDatabase } from './resource.ts'
import { NOW, scenario, tenant } from './scenario.ts'
import { tenantDatabase } from './tenant-database.ts'

const DAY = 86_400
type Options = SimulationOptions<typeof TenantDatabase>
const cluster: Options['cluster'] = [deploymentsRun, jobsRun({ seconds: 30 })]
const simulated = (options: Partial<Options> = {}) =>
  simulate(tenantDatabase, { objects: [tenant()], now: NOW, cluster, ...options })
type World = ReturnType<typeof simulated>

const phaseOf = ({ object }: World) => object?.status?.phase
const namesOf = (world: World, kind: typeof Deployment | typeof Job) =>
  (world.list(kind) as { metadata: { name: string } }[]).map(({ metadata }) => metadata.name).sort()
/** Runs until the migration has ended. */
async function running(options: Partial<Options> = {}): Promise<World> {
  const world = simulated(options)
  await world.runUntilIdle()
  await world.advance(30)
  return world
}

const ready = { replicas: 1, readyReplicas: 1, updatedReplicas: 1 }
const db = (status: object) => Deployment.of({ metadata: { name: 'acme-db' }, spec: {}, status } as never)

describe('the phase of a TenantDatabase', () => {
  it.each([
    given('nothing exists', tenantDatabase, { object: tenant() }).returns({
      status: { phase: 'Provisioning', nextBackup: '2030-01-01T02:00:00.000Z' },
      conditions: [{ type: 'Ready', status: 'False', reason: 'Provisioning' }],
      requeueAt: '2030-01-01T02:00:00.000Z',
    }),
    given('the hour of the backup has passed', tenantDatabase, {
      object: tenant(),
      now: '2030-01-01T02:00:00Z',
    }).returns({
      requeueAt: '2030-01-02T02:00:00.000Z',
    }),
    given('a database that is not its own', tenantDatabase, { object: tenant(), others: [db(ready)] }).returns({
      status: { phase: 'Provisioning' },
    }),
    given('an hour that no day has', tenantDatabase, { object: tenant({ backupHour: 24 }) }).throws('spec.backupHour'),
  ])('given %s', (_, holds) => holds())

  it('follows the database, the migration and the application', async () => {
    const world = simulated({ cluster: [] })
    const rolledOut = (name: string) => world.patch(Deployment, { status: { ...ready, observedGeneration: 1 } }, name)
    const seen: [string | undefined, string[]][] = []
    const look = async () => {
      await world.runUntilIdle()
      seen.push([phaseOf(world), [...namesOf(world, Deployment), ...namesOf(world, Job)]])
    }
    await look()
    rolledOut('acme-db')
    await look()
    world.patch(Job, { status: { conditions: [{ type: 'Complete', status: 'True' }] } })
    await look()
    rolledOut('acme-app')
    await look()
    expect(seen).toEqual([
      ['Provisioning', ['acme-db']],
      ['Migrating', ['acme-db', 'acme-migrate-1']],
      ['Starting', ['acme-app', 'acme-db', 'acme-migrate-1']],
      ['Running', ['acme-app', 'acme-db', 'acme-migrate-1']],
    ])
  })

  it('is Failed when the migration has failed', async () => {
    const world = await running({ cluster: [deploymentsRun, jobsRun({ fails: () => true })] })
    expect(phaseOf(world)).toBe('Failed')
    expect(namesOf(world, Deployment)).toEqual(['acme-db'])
  })

  it('is Starting while the application crashes, and the application of before stays', async () => {
    const crashes = (one: { spec?: { template: { spec?: { containers: { image?: string }[] } } } }) =>
      one.spec?.template.spec?.containers[0]?.image?.endsWith(':2') === true
    const world = await running({ cluster: [deploymentsRun({ crashes }), jobsRun] })
    expect(phaseOf(world)).toBe('Running')
    world.edit({ spec: { version: '2' } })
    await world.runUntilIdle()
    expect(phaseOf(world)).toBe('Starting')
    world.edit({ spec: { version: '3' } })
    await world.runUntilIdle()
    expect(phaseOf(world)).toBe('Running')
  })
})

it('has a policy for each team, one Secret, and Services for both tiers', async () => {
  const world = await running()
  expect(world.list(NetworkPolicy).map(({ metadata }) => metadata.name)).toEqual(['acme-from-web', 'acme-from-jobs'])
  expect(world.list(Service).map(({ metadata }) => metadata.name)).toEqual(['acme-db', 'acme-app'])
  const [before] = world.list(Secret)
  world.edit({ spec: { teams: [], plan: 'large' } })
  await world.runUntilIdle()
  expect([world.list(NetworkPolicy), world.list(Secret)]).toEqual([[], [before]])
  expect(world.list(Deployment).map(({ spec }) => spec?.replicas)).toEqual([1, 3])
})

describe('its backups', () => {
  it('are made once a day at their hour, and the last three Jobs are kept', async () => {
    const world = await running()
    await world.advance(7200 - 30)
    expect(namesOf(world, Job)).toEqual(['acme-backup-20300101', 'acme-migrate-1'])
    await world.advance(3 * DAY)
    expect(namesOf(world, Job).slice(0, -1)).toEqual([2, 3, 4].map((day) => `acme-backup-2030010${day}`))
    expect(world.object?.status).toMatchObject({ lastBackup: '20300103', nextBackup: '2030-01-05T02:00:00.000Z' })
  })

  it('that fail are in a condition, until the next one is complete', async () => {
    const fails = ({ metadata }: { metadata: { name: string } }) => metadata.name === 'acme-backup-20300101'
    const world = await running({ cluster: [deploymentsRun, jobsRun({ fails })] })
    await world.advance(7200)
    const backedUp = () => world.object?.status?.conditions?.find(({ type }) => type === 'BackedUp')
    expect(backedUp()).toMatchObject({ status: 'False', message: 'Job acme-backup-20300101' })
    await world.advance(DAY)
    expect(backedUp()).toMatchObject({ status: 'True', message: 'Job acme-backup-20300102' })
  })

  it('that were missed are made up for once', async () => {
    const world = await running()
    world.pass(5 * DAY)
    await world.runUntilIdle()
    expect(namesOf(world, Job)).toEqual(['acme-backup-20300105', 'acme-migrate-1'])
  })
})

describe('its deletion', () => {
  it('waits for a last backup, and leaves a record', async () => {
    const world = await running()
    world.delete()
    await world.runUntilIdle()
    expect(phaseOf(world)).toBe('Deleting')
    expect(namesOf(world, Deployment)).toEqual(['acme-app', 'acme-db'])
    await world.advance(30)
    expect(world.memory.all()).toMatchObject([{ kind: 'ConfigMap', data: { lastBackup: '20300101' } }])
  })

  it('does not wait longer than ten minutes, and says so', async () => {
    const world = await running()
    world.isAlone = true
    world.delete()
    await world.runUntilIdle()
    await world.advance(599)
    expect(world.object).toBeDefined()
    await world.advance(1)
    expect(world.object).toBeUndefined()
    expect(world.list(ConfigMap)).toMatchObject([{ data: { lastBackup: 'none' } }])
    expect(world.events).toMatchObject([{ type: 'Warning', reason: 'LastBackupMissing' }])
  })
})

describe('whatever happens to a TenantDatabase', () => {
  it.each(lawsOf(tenantDatabase, scenario))('%s', (_, holds) => holds())
})
