import { Deployment, Job, Secret, StatefulSet } from 'fairlead'
import {
  deploymentsRun,
  jobsRun,
  lawsOf,
  type Scenario,
  type SimulationOptions,
  simulate,
  statefulSetsRun,
} from 'fairlead/testing'
import { describe, expect, it } from 'vitest'
import { AWX, awx } from './awx.ts'

type Spec = Parameters<typeof AWX.of>[0]['spec']
const awxOf = (spec: Spec = {}) => AWX.of({ metadata: { name: 'demo', namespace: 'default' }, spec })
const cluster = [statefulSetsRun, deploymentsRun, jobsRun({ seconds: 30 })]
const simulated = (options: Partial<SimulationOptions<typeof AWX>> = {}) =>
  simulate(awx, { objects: [awxOf()], cluster, ...options })
type World = ReturnType<typeof simulated>
async function migrated(options: Partial<SimulationOptions<typeof AWX>> = {}): Promise<World> {
  const world = simulated(options)
  await world.runUntilIdle()
  await world.advance(30)
  return world
}
const names = (world: World) =>
  [...world.list(StatefulSet), ...world.list(Job), ...world.list(Deployment)].map(({ metadata }) => metadata.name)
const ready = (world: World) => world.object?.status?.conditions?.find(({ type }) => type === 'Ready')

const scenario: Scenario<typeof AWX> = {
  objects: [awxOf()],
  cluster,
  steps: [
    ['the migration ends', (world) => world.pass(30)],
    ['a new version comes', (world) => world.edit({ spec: { image_version: '25.0.0' } })],
    ['its migration ends', (world) => world.pass(30)],
    [
      ['the web pods are scaled', (world) => world.edit({ spec: { web_replicas: 3 } })],
      ['somebody deletes a Secret', (world) => world.delete(Secret, 'demo-secret-key')],
    ],
  ],
}

describe('an AWX', () => {
  it.each(lawsOf(awx, scenario))('%s', (_, holds) => holds(), 120_000)

  it('has its pods when the tables are migrated, and not before', async () => {
    const world = simulated()
    await world.runUntilIdle()
    expect(names(world)).toEqual(['demo-postgres', 'demo-migration-24-6-1'])
    expect(ready(world)).toMatchObject({ status: 'False', reason: 'Waiting' })
    expect(ready(world)?.message).toContain('waits for Job demo-migration-24-6-1')
    await world.advance(30)
    expect(names(world)).toEqual(['demo-postgres', 'demo-migration-24-6-1', 'demo-web', 'demo-task'])
    expect(world.object?.status).toMatchObject({ version: '24.6.1', adminPasswordSecret: 'demo-admin-password' })
    expect(ready(world)?.status).toBe('True')
  })

  it('serves the version of before until the tables of the next one are migrated', async () => {
    const world = await migrated()
    world.edit({ spec: { image_version: '25.0.0' } })
    await world.runUntilIdle()
    const images = () => world.list(Deployment).map(({ spec }) => spec?.template.spec?.containers[0]?.image)
    expect(images()).toEqual(Array(2).fill('quay.io/ansible/awx:24.6.1'))
    await world.advance(30)
    expect(images()).toEqual(Array(2).fill('quay.io/ansible/awx:25.0.0'))
    expect(world.object?.status?.version).toBe('25.0.0')
  })

  it('shows a migration that fails, and does not start', async () => {
    const world = await migrated({
      cluster: [statefulSetsRun, deploymentsRun, jobsRun({ seconds: 30, fails: () => true })],
    })
    expect(names(world)).toEqual(['demo-postgres', 'demo-migration-24-6-1'])
    expect(ready(world)).toMatchObject({ status: 'False', reason: 'Failed' })
  })

  it.each([
    ['replicas', { replicas: 2 }, [2, 2]],
    ['replicas of one part', { replicas: 2, task_replicas: 5 }, [2, 5]],
  ])('has the %s of its spec', async (_, spec, counts) => {
    const world = await migrated({ objects: [awxOf(spec)] })
    expect(world.list(Deployment).map((one) => one.spec?.replicas)).toEqual(counts)
  })

  it('has no database of its own beside an external one', async () => {
    const world = await migrated()
    world.edit({ spec: { postgres_configuration_secret: 'theirs' } })
    await world.runUntilIdle()
    expect(world.list(StatefulSet)).toEqual([])
    const [container] = world.list(Deployment)[0]?.spec?.template.spec?.containers ?? []
    expect(container?.env?.[0]?.valueFrom?.secretKeyRef?.name).toBe('theirs')
  })

  it.each([
    [false, ['demo-admin-password', 'demo-secret-key', 'demo-postgres-configuration']],
    [true, []],
  ])(
    'leaves its Secrets for a later AWX of that name, unless garbage_collect_secrets is %s',
    async (collects, left) => {
      const world = await migrated({ objects: [awxOf({ garbage_collect_secrets: collects })] })
      const password = world.list(Secret)[0]?.data
      expect(password).toBeDefined()
      world.delete()
      await world.runUntilIdle()
      expect(world.list(Secret).map(({ metadata }) => metadata.name)).toEqual(left)
      if (collects) return
      world.create(awxOf())
      await world.runUntilIdle()
      expect(world.list(Secret)[0]?.data).toEqual(password)
    },
  )
})
