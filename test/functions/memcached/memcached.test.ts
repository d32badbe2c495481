import { describe, expect, it } from 'vitest'
import { Memcached, memcached } from '#functions/memcached'
import { Deployment, Pod } from '#sdk'
import { deploymentsRun, lawsOf, type Simulation, simulate } from '#testing'
import { cache, scenario } from './scenario.ts'

const read = ({ object }: Simulation) => Memcached.parse(object!)
const condition = (world: Simulation, type: string) => read(world).status.conditions?.find((one) => one.type === type)

const simulated = (...objects: ReturnType<typeof cache>[]) => simulate(memcached, { objects, cluster: deploymentsRun })

describe('a Memcached', () => {
  it('is a Deployment of its size, with the names of its pods in its status', async () => {
    const world = simulated(cache('a', { size: 2 }))
    await world.runUntilIdle()
    expect(world.list(Deployment)).toMatchObject([{ metadata: { name: 'a' }, spec: { replicas: 2 } }])
    expect(read(world).status).toMatchObject({ nodes: ['a-0', 'a-1'], replicas: 2, readyReplicas: 2 })
  })

  it('has three servers where nothing is said', async () => {
    const world = simulated(cache('a'))
    await world.runUntilIdle()
    expect(read(world).status.nodes).toHaveLength(3)
  })

  it.each([
    [{ size: 5 }, { replicas: 5 }],
    [{ image: 'memcached:2' }, { template: { spec: { containers: [{ image: 'memcached:2' }] } } }],
    [
      { containerPort: 12_345 },
      {
        template: {
          spec: {
            containers: [
              {
                command: ['memcached', '-m', '64', '-o', 'modern', '-v', '-p', '12345'],
                ports: [{ containerPort: 12_345, name: 'memcached' }],
              },
            ],
          },
        },
      },
    ],
  ])('applies a change of its spec: %j', async (change, spec) => {
    const world = simulated(cache('a'))
    await world.runUntilIdle()
    world.edit({ spec: change })
    await world.runUntilIdle()
    expect(world.list(Deployment)).toMatchObject([{ spec }])
  })

  it('repairs what somebody changes of its Deployment', async () => {
    const world = simulated(cache('a'))
    await world.runUntilIdle()
    world.patch(Deployment, { spec: { replicas: 1 } })
    await world.runUntilIdle()
    expect(world.list(Deployment)).toMatchObject([{ spec: { replicas: 3 } }])
  })

  it('lists sorted, without pods that are going or have ended, and without those of others', async () => {
    const world = simulated(cache('a'), cache('b'))
    await world.runUntilIdle()
    const labels = world.list(Pod)[0]?.metadata.labels
    const pod = (name: string, rest: object) => ({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace: 'default', labels },
      ...rest,
    })
    for (const [name, phase] of [
      ['a-z', 'Failed'],
      ['a-y', 'Pending'],
      ['A-x', 'Running'],
    ] as const)
      world.create(pod(name, { status: { phase } }))
    world.create({
      ...pod('theirs', {}),
      metadata: { name: 'theirs', namespace: 'default', labels: { ...labels, 'app.kubernetes.io/instance': 'b' } },
    })
    world.patch(Pod, { metadata: { finalizers: ['x'] } }, 'a-0')
    world.delete(Pod, 'a-0')
    await world.runUntilIdle()
    expect(read(world).status.nodes).toEqual(['A-x', 'a-1', 'a-2', 'a-y'])
  })

  it('shares its selector with no other, whatever their names', async () => {
    const selectors = await Promise.all(
      ['a', 'b', `${'a'.repeat(250)}x`, `${'a'.repeat(250)}y`].map(async (name) => {
        const world = simulated(cache(name))
        await world.runUntilIdle()
        const [deployment] = world.list(Deployment)
        expect(deployment?.spec?.template.metadata?.labels).toEqual(deployment?.spec?.selector.matchLabels)
        return read(world).status.selector
      }),
    )
    expect(new Set(selectors).size).toBe(4)
  })

  it('fits into a namespace with restricted pods', async () => {
    const world = simulated(cache('a'))
    await world.runUntilIdle()
    expect(world.list(Deployment)).toMatchObject([
      {
        spec: {
          template: {
            spec: {
              securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
              containers: [
                {
                  securityContext: {
                    allowPrivilegeEscalation: false,
                    capabilities: { drop: ['ALL'] },
                    runAsUser: 1001,
                  },
                },
              ],
            },
          },
        },
      },
    ])
  })
})

describe('the conditions of a Memcached', () => {
  const withStatus = async (status: object) => {
    const world = simulate(memcached, { objects: [cache('a')] })
    await world.runUntilIdle()
    world.patch(Deployment, { status })
    await world.runUntilIdle()
    return ['Available', 'Progressing', 'Degraded'].map((type) => condition(world, type)?.status)
  }
  const counts = { replicas: 3, updatedReplicas: 3, readyReplicas: 3 }
  const stuck = [{ type: 'Progressing', status: 'False', reason: 'ProgressDeadlineExceeded' }]

  it.each([
    ['nothing is there yet', {}, ['False', 'True', 'False']],
    ['some are ready', { ...counts, readyReplicas: 2, observedGeneration: 1 }, ['False', 'True', 'False']],
    ['all are ready', { ...counts, observedGeneration: 1 }, ['True', 'False', 'False']],
    ['all are ready, of what was asked for before', { ...counts, observedGeneration: 0 }, ['True', 'True', 'False']],
    ['it is stuck', { ...counts, readyReplicas: 1, conditions: stuck }, ['False', 'False', 'True']],
  ])('say so when %s', async (_, status, expected) => {
    expect(await withStatus(status)).toEqual(expected)
  })

  it('say that it is going, with an Event, and nothing holds it back', async () => {
    const world = simulated(cache('a'))
    await world.runUntilIdle()
    expect(read(world).metadata.finalizers).toEqual(['fairlead.dev/memcached'])
    world.delete()
    expect(world.object).toBeDefined()
    await world.runUntilIdle()
    expect([world.object, world.list(Deployment)]).toEqual([undefined, []])
    expect(world.events).toMatchObject([{ type: 'Warning', reason: 'Deleting' }])
  })
})

describe('whatever happens to a Memcached', () => {
  it.each(lawsOf(memcached, scenario))('%s', (_, holds) => holds())
})
