import { Job } from 'fairlead'
import { jobsRun, lawsOf, type Scenario, type SimulationOptions, simulate } from 'fairlead/testing'
import { describe, expect, it } from 'vitest'
import { CronJob, cronJob } from './cron-job.ts'

type Spec = Parameters<typeof CronJob.of>[0]['spec']
const containers = [{ name: 'job', image: 'busybox', command: ['true'] }]
const jobTemplate = {
  metadata: { labels: { team: 'shop' } },
  spec: { template: { spec: { restartPolicy: 'Never', containers } } },
}
const cron = (spec: Partial<Spec> = {}) =>
  CronJob.of({
    metadata: { name: 'report', namespace: 'default' },
    spec: { schedule: '*/5 * * * *', jobTemplate, ...spec },
  })

const takes = (seconds: number) => jobsRun({ seconds })
const started = (spec: Partial<Spec> = {}, options: Partial<SimulationOptions<typeof CronJob>> = {}) =>
  simulate(cronJob, { objects: [cron(spec)], cluster: takes(60), ...options })
type World = ReturnType<typeof started>
const AT = Date.parse('2030-01-01T00:00:00Z') / 1000
/** The minutes of the hour at which the Jobs were due. */
const minutes = (world: World) =>
  world.list(Job).map(({ metadata }) => (Number(metadata.name.slice('report-'.length)) - AT) / 60)
const ready = (world: World) => world.object?.status?.conditions?.find(({ type }) => type === 'Ready')
async function after(seconds: number, world: World): Promise<World> {
  await world.runUntilIdle()
  await world.advance(seconds)
  return world
}

const scenario = (concurrencyPolicy: Spec['concurrencyPolicy']): Scenario<typeof CronJob> => ({
  objects: [cron({ schedule: '0 * * * *', concurrencyPolicy })],
  cluster: takes(4000),
  steps: [
    ['a time comes', (world) => world.pass(3600)],
    ['the next time comes while the Job runs', (world) => world.pass(3600)],
    ['it is suspended', (world) => world.edit({ spec: { suspend: true } })],
    ['its Jobs end', (world) => world.pass(4000)],
    ['it goes on', (world) => world.edit({ spec: { suspend: false } })],
  ],
})

describe.each(['Allow', 'Forbid', 'Replace'] as const)('a CronJob with the policy %s', (policy) => {
  it.each(lawsOf(cronJob, scenario(policy)))('%s', (_, holds) => holds(), 120_000)
})

describe('a CronJob', () => {
  it('makes a Job of its template at each time, and keeps the last ones', async () => {
    const world = await after(299, started())
    expect(minutes(world)).toEqual([])
    await world.advance(1)
    expect(minutes(world)).toEqual([5])
    const [job] = world.list(Job)
    expect(job?.metadata).toMatchObject({
      labels: { team: 'shop' },
      annotations: { 'batch.tutorial.kubebuilder.io/scheduled-at': '2030-01-01T00:05:00.000Z' },
    })
    expect(job?.spec?.template.spec?.containers).toEqual(containers)
    expect(world.object?.status).toMatchObject({
      active: [{ name: `report-${AT + 300}`, uid: job?.metadata.uid }],
      lastScheduleTime: '2030-01-01T00:05:00.000Z',
    })
    await world.advance(1500)
    expect(minutes(world)).toEqual([15, 20, 25, 30].slice(0, minutes(world).length))
    await world.advance(60)
    expect(minutes(world)).toEqual([20, 25, 30])
    expect(world.object?.status?.active).toEqual([])
  })

  it.each([
    ['Allow', [5, 10]],
    ['Forbid', [5]],
    ['Replace', [10]],
  ] as const)('with the policy %s has the Jobs of %j while the first one would still run', async (policy, due) => {
    const world = started({ concurrencyPolicy: policy }, { cluster: takes(400) })
    let most = 0
    world.before = () => {
      most = Math.max(most, world.list(Job).length)
    }
    expect(minutes(await after(620, world))).toEqual(due)
    expect(most).toBe(due.length)
  })

  it('with the policy Forbid makes a time up when the Job before has ended, unless the deadline is over', async () => {
    const spec = { concurrencyPolicy: 'Forbid' as const }
    expect(minutes(await after(710, started(spec, { cluster: takes(400) })))).toEqual([5, 10])
    const late = await after(710, started({ ...spec, startingDeadlineSeconds: 60 }, { cluster: takes(400) }))
    expect(minutes(late)).toEqual([5])
  })

  it('makes up for the last one of the times that it has missed, within the deadline', async () => {
    const world = started()
    await world.runUntilIdle()
    world.pass(3700)
    await world.runUntilIdle()
    expect(minutes(world)).toEqual([60])
    const late = started({ startingDeadlineSeconds: 30 })
    await late.runUntilIdle()
    late.pass(3700)
    await late.runUntilIdle()
    expect(minutes(late)).toEqual([])
    expect(late.timer).toEqual(new Date('2030-01-01T01:05:00Z'))
  })

  it('keeps failed Jobs by a limit of their own, and shows the last failure', async () => {
    const failing = jobsRun({ seconds: 60, fails: ({ metadata }) => Number(metadata.name.slice(-3)) % 600 !== 0 })
    const world = await after(1800 + 70, started({ successfulJobsHistoryLimit: 1 }, { cluster: failing }))
    const ends = world.list(Job).map(({ status }) => status?.conditions?.[0]?.type)
    expect(ends.filter((end) => end === 'Failed').length).toBeLessThanOrEqual(1)
    expect(ends.filter((end) => end === 'Complete').length).toBeLessThanOrEqual(1)
  })

  it('makes no Job while it is suspended', async () => {
    const world = await after(1000, started({ suspend: true }))
    expect(minutes(world)).toEqual([])
    expect(ready(world)).toMatchObject({ status: 'True', reason: 'Suspended' })
    expect(world.timer).toBeUndefined()
  })

  it('names what is wrong with its schedule', async () => {
    const world = await after(1000, started({ schedule: 'every day' }))
    expect(ready(world)).toMatchObject({ status: 'False', reason: 'InvalidSchedule' })
    expect(world.failure).toBeUndefined()
  })

  it('has a name that leaves room for those of its Jobs', () => {
    const object = CronJob.of({ metadata: { name: 'a'.repeat(53), namespace: 'default' }, spec: cron().spec as Spec })
    const world = started()
    expect(() => world.create(object)).toThrow('11 characters more')
  })
})
