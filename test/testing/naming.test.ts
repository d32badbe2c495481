import { ConfigMap, Pod, reconciler, resource, z } from 'fairlead'
import { lawsOf, outcomeOf, type Simulation, simulate } from 'fairlead/testing'
import { describe, expect, it } from 'vitest'

const Host = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Host',
  plural: 'hosts',
  scope: 'Cluster',
  spec: z.object({}),
  status: z.object({ pods: z.array(z.string()).optional() }),
})
const Here = { ...Pod, naming: 'spec.nodeName' } as const
const hosts = reconciler({
  name: 'hosts',
  for: Host,
  owns: [ConfigMap],
  related: [Here],
  reconcile: ({ object: { metadata }, related }) => {
    const pods = related(Here)
      .map(({ metadata: { name } }) => name)
      .sort()
    const list = ConfigMap.of({ metadata: { name: metadata.name, namespace: 'default' }, data: { pods: pods.join() } })
    return { apply: [list], status: { pods } }
  },
})
const host = Host.of({ metadata: { name: 'n1' }, spec: {} })
const pod = (name: string, nodeName?: string) =>
  Pod.of({
    metadata: { name, namespace: 'default' },
    spec: { containers: [{ name: 'c', image: 'i' }], ...(nodeName && { nodeName }) },
  })
const others = [pod('a', 'n1'), pod('b', 'n2'), pod('c')]

describe('objects that name the object in a field', () => {
  it('are given to the function, and no others', async () => {
    const { status } = await outcomeOf(hosts, { object: host, others })
    expect(status).toEqual({ pods: ['a'] })
  })

  it('are given when they come, and no more when they name another one', async () => {
    const world = simulate(hosts, { objects: [host, ...others] }) as Simulation
    await world.runUntilIdle()
    world.patch(Pod, { spec: { nodeName: 'n1' } }, 'c')
    await world.runUntilIdle()
    expect(world.object?.status).toMatchObject({ pods: ['a', 'c'] })
  })

  it.each(
    lawsOf(hosts, {
      objects: [host, ...others],
      steps: [
        ['one comes', (world) => world.create(pod('d', 'n1'))],
        [
          ['they go', (world) => world.delete(Pod, 'a')],
          ['one is bound', (world) => world.patch(Pod, { spec: { nodeName: 'n1' } }, 'c')],
        ],
      ],
    }),
  )('%s', async (_, holds) => holds())

  it.each([{ namespacePath: 'spec.name' }, { byOwner: true }, { metadataOnly: true }, { within: 'Cluster' as const }])(
    'are named in one way: not with %j',
    (more) => {
      const related = [{ ...Here, ...more }]
      const declared = () => reconciler({ name: 'wrong', for: Host, related, reconcile: () => ({}) })
      expect(declared).toThrow('a field of objects in the namespace of the object has the name: leave out byOwner')
    },
  )
})
