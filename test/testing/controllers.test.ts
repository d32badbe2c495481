import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { Deployment, Job, Pod, reconciler, resource, StatefulSet, stages } from '#sdk'
import { deploymentsRun, given, jobsRun, othersSet, type SimulationOptions, simulate, statefulSetsRun } from '#testing'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  spec: z.object({ size: z.int32().default(3), image: z.string().default('shop') }),
  status: z.object({ ready: z.int32() }),
})
const owns = [Deployment, StatefulSet, Job] as const
const template = (image: string) => ({ spec: { containers: [{ name: 'main', image }] } })

function partsOf({ size, image }: { size: number; image: string }) {
  const body = { replicas: size, selector: {}, template: template(image) }
  return {
    web: Deployment.of({ metadata: { name: 'web' }, spec: body }),
    store: StatefulSet.of({ metadata: { name: 'store' }, spec: body }),
    setup: Job.of({ metadata: { name: 'setup' }, spec: { template: template('job'), activeDeadlineSeconds: 100 } }),
  }
}

/** A function that makes one object of each kind that the cluster plays, and counts what is ready. */
const shop = reconciler({
  name: 'shop',
  for: Shop,
  owns,
  reconcile: ({ object: { spec }, owned }) => ({
    apply: Object.values(partsOf(spec)),
    status: { ready: owned(Deployment)[0]?.status?.readyReplicas ?? 0 },
  }),
})

const object = Shop.of({ metadata: { name: 'a', namespace: 'default' }, spec: {} })
const simulated = (cluster: SimulationOptions<typeof Shop>['cluster']) => simulate(shop, { objects: [object], cluster })
type World = ReturnType<typeof simulated>

const seenIn = ({ inputs }: World): (number | undefined)[] => {
  const counts = inputs.map(
    ({ owned }) => (owned['Deployment.v1.apps']?.[0] as { status?: { readyReplicas?: number } })?.status?.readyReplicas,
  )
  return counts.filter((count, index) => index === 0 || count !== counts[index - 1])
}
const podsOf = (world: World) => world.list(Pod).map(({ metadata }) => metadata.name)
const endOf = (world: World) => world.list(Job)[0]?.status?.conditions?.map(({ type, reason }) => [type, reason])

describe('the pods of a cluster in memory', () => {
  it('are ready at once', async () => {
    const world = simulated(deploymentsRun)
    await world.runUntilIdle()
    expect(seenIn(world)).toEqual([undefined, 3])
    expect(podsOf(world)).toEqual(['web-0', 'web-1', 'web-2'])
  })

  it('become ready one by one, and the function sees each of them', async () => {
    const world = simulated(deploymentsRun({ oneByOne: true }))
    await world.runUntilIdle()
    expect(seenIn(world)).toEqual([undefined, 0, 1, 2, 3])
    world.edit({ spec: { size: 1 } })
    await world.runUntilIdle()
    expect(seenIn(world).at(-1)).toBe(1)
  })

  it('crash for as long as they are to', async () => {
    const world = simulated(
      deploymentsRun({ crashes: ({ spec }) => spec?.template.spec?.containers[0]?.image === 'broken' }),
    )
    const readyOf = async (image: string) => {
      world.edit({ spec: { image } })
      await world.runUntilIdle()
      return world.object?.status?.ready
    }
    expect([await readyOf('shop'), await readyOf('broken')]).toEqual([3, 0])
    expect(world.list(Pod)[0]?.status?.containerStatuses).toMatchObject([
      { state: { waiting: { reason: 'CrashLoopBackOff' } } },
    ])
    expect(await readyOf('mended')).toBe(3)
  })

  it('have the labels of a changed template, and keep those that others set', async () => {
    const world = simulated(deploymentsRun)
    await world.runUntilIdle()
    const labelled = (labels: object) => ({ spec: { template: { metadata: { labels } } } })
    const labelsOf = () => new Set(world.list(Pod).map(({ metadata }) => JSON.stringify(metadata.labels)))
    world.patch(Deployment, labelled({ version: '1' }))
    world.patch(Pod, { metadata: { labels: { role: 'leader' } } })
    expect(labelsOf()).toEqual(new Set(['{"version":"1","role":"leader"}']))
    world.patch(Deployment, labelled({ version: '2' }))
    expect(labelsOf()).toEqual(new Set(['{"version":"2"}']))
  })

  it('of a StatefulSet are made in their order: none after one that crashes', async () => {
    const world = simulated(statefulSetsRun({ crashes: () => true }))
    await world.runUntilIdle()
    expect(podsOf(world)).toEqual(['store-0'])
    const healthy = simulated(statefulSetsRun)
    await healthy.runUntilIdle()
    expect(healthy.list(StatefulSet)[0]?.status).toMatchObject({ replicas: 3, readyReplicas: 3, updatedReplicas: 3 })
  })

  it('keep within a quota, until it is gone', async () => {
    const world = simulated(deploymentsRun)
    world.limit(Pod, 2)
    await world.runUntilIdle()
    expect([podsOf(world).length, world.object?.status?.ready]).toEqual([2, 2])
    world.admit(Pod)
    world.edit({ metadata: { labels: { quota: 'none' } } })
    await world.runUntilIdle()
    expect(world.object?.status?.ready).toBe(3)
  })

  it('stay as they are while the world is alone', async () => {
    const world = simulated(deploymentsRun)
    world.isAlone = true
    await world.runUntilIdle()
    expect(podsOf(world)).toEqual([])
    expect(world.copy().isAlone).toBe(true)
  })
})

it('a quota refuses what would be one more, and not what exists', async () => {
  const world = simulated([])
  world.limit(Job, 0)
  await world.runUntilIdle()
  expect([world.list(Job), String(world.failure)]).toEqual([[], expect.stringContaining('Job')])
  world.admit()
  await world.runUntilIdle()
  world.limit(Job, 1)
  world.edit({ spec: { size: 2 } })
  await world.runUntilIdle()
  expect(world.failure).toBeUndefined()
})

describe('the Jobs of a cluster in memory', () => {
  it('are complete at once', async () => {
    const world = simulated(jobsRun)
    await world.runUntilIdle()
    expect(endOf(world)).toEqual([['Complete', 'CompletionsReached']])
  })

  it.each([
    ['take time', jobsRun({ seconds: 30 }), 30, ['Complete', 'CompletionsReached']],
    ['fail', jobsRun({ seconds: 30, fails: () => true }), 30, ['Failed', 'BackoffLimitExceeded']],
    ['end at their deadline', jobsRun({ seconds: Infinity }), 100, ['Failed', 'DeadlineExceeded']],
  ])('%s, and their end starts a run', async (_, part, seconds, end) => {
    const world = simulated([deploymentsRun, part])
    await world.runUntilIdle()
    await world.advance(seconds - 1)
    expect([endOf(world), world.clusterTimer]).toEqual([undefined, new Date(Date.parse('2030-01-01') + seconds * 1000)])
    const { length } = world.inputs
    await world.advance(1)
    expect(world.inputs.length).toBeGreaterThan(length)
    expect(endOf(world)).toEqual([end])
  })
})

it('another controller sets its fields again, and the function gives way for a time', async () => {
  const world = simulated([deploymentsRun, othersSet(Deployment, { spec: { replicas: 7 } })])
  await world.runUntilIdle()
  expect(world.list(Deployment)[0]?.spec?.replicas).toBe(7)
  expect(world.timer).toBeDefined()
})

it('a cluster that never ends is an error, also where it changes one thing at a time', async () => {
  let count = 0
  const restless = simulated((world) =>
    world.oneByOne(() => world.patch(Job, { metadata: { labels: { count: `${count++}` } } })),
  )
  await expect(restless.runUntilIdle()).rejects.toThrow('the cluster never becomes idle')
})

describe('a row of a table', () => {
  const [, holds] = given('a shop', shop, { object }).returns({
    status: { ready: 0 },
    apply: [{ kind: 'Deployment' }, {}, {}],
  })
  const [, differs] = given('a shop', shop, { object }).returns({
    status: { ready: 3 },
    apply: [{ kind: 'Deployment' }],
  })
  const [, throws] = given('a shop', shop, { object: { ...object, spec: { size: 'x' } } }).throws('spec.size')
  const [, fails] = given('a shop', shop, { object }).throws('spec.size')

  it('holds for what it names', async () => {
    await holds()
    await throws()
  })

  it('names each difference', async () => {
    await expect(differs()).rejects.toThrow(
      /^shop returns otherwise, given a shop\n {2}expected → returned:\n {2}~ \.status\.ready: 3 → 0\n {2}\+ \.apply\['StatefulSet store'\]: .*\n {2}\+ \.apply\['Job setup'\]: /,
    )
    await expect(fails()).rejects.toThrow('shop returns an outcome, instead of an error with "spec.size", given a shop')
  })

  describe('of a function with stages', () => {
    const staged = reconciler({
      name: 'staged',
      for: Shop,
      owns,
      reconcile(run) {
        const { web, store, setup } = partsOf(run.object.spec)
        return { apply: stages(run, [[store], [setup, web]]).apply }
      },
    })
    const row = (...apply: object[]) => given('a shop', staged, { object }).returns({ apply })[1]
    const [held, set] = [{ stage: { action: 'Hold' } }, { kind: 'StatefulSet' }]
    const web = { kind: 'Deployment', metadata: { name: 'web' } }

    it('compares by kind and name, in any order', () => row({ ...web, ...held }, set, { kind: 'Job', ...held })())

    it('says first what is held, and names nothing else', async () => {
      const message = await row(web, set)().catch((error: Error) => error.message)
      expect(String(message).split('\n').slice(2)).toEqual([
        `  + .apply['Deployment web'].stage: {"action":"Hold"}`,
        expect.stringMatching(/^ {2}\+ \.apply\['Job setup'\]: \{"stage":\{"number":2,"action":"Hold"\},/),
      ])
    })
  })
})
