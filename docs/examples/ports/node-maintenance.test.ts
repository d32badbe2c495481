import { type KubeObject, kind, Node, Pod } from 'fairlead'
import { given, lawsOf, type Scenario, simulate } from 'fairlead/testing'
import { describe, expect, it } from 'vitest'
import { NodeMaintenance, nodeMaintenance } from './node-maintenance.ts'

const object = NodeMaintenance.of({ metadata: { name: 'disk' }, spec: { nodeName: 'a', reason: 'a disk is replaced' } })
const node = (name: string, labels = {}): KubeObject => ({ apiVersion: 'v1', kind: 'Node', metadata: { name, labels } })
const pod = (name: string, nodeName: string, metadata = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace: 'shop', ...metadata },
  spec: { nodeName },
})
const DaemonSet = kind({ group: 'apps', version: 'v1', kind: 'DaemonSet', plural: 'daemonsets' })
const ofDaemonSet = (uid: string | undefined) => ({
  ownerReferences: [{ apiVersion: 'apps/v1', kind: 'DaemonSet', name: 'logs', uid, controller: true }],
})
const others = [
  node('a', { zone: 'x' }),
  node('b'),
  pod('web-0', 'a'),
  pod('web-1', 'b'),
  pod('db-0', 'a'),
  DaemonSet.of({ metadata: { name: 'logs', namespace: 'shop' } }),
  pod('proxy-a', 'a', { annotations: { 'kubernetes.io/config.mirror': 'x' } }),
]
function started() {
  const world = simulate(nodeMaintenance, { objects: [object, ...others] })
  world.create(pod('logs-x', 'a', ofDaemonSet(world.list(DaemonSet)[0]?.metadata.uid)))
  return world
}
const podsOf = (world: ReturnType<typeof started>) => world.list(Pod).map(({ metadata }) => metadata.name)
const nodeOf = (world: ReturnType<typeof started>, name = 'a') =>
  world.list(Node).find(({ metadata }) => metadata.name === name)

const scenario: Scenario<typeof NodeMaintenance> = {
  objects: [object, ...others],
  steps: [
    ['another pod is bound', (world) => world.create(pod('late-0', 'a'))],
    ['somebody else uncordons', (world) => world.patch(Node, { spec: { unschedulable: null } }, 'a')],
    ['its Node goes', (world) => world.delete(Node, 'a')],
  ],
}

describe('a NodeMaintenance', () => {
  it.each(lawsOf(nodeMaintenance, scenario))('%s', (_, holds) => holds(), 60_000)

  it.each([
    given('no Node of that name', nodeMaintenance, { object, others: [node('b')] }).returns({
      patch: [],
      status: { phase: 'Failed', lastError: 'no Node a' },
    }),
    given('a Node without pods', nodeMaintenance, { object, others: [node('a')] }).returns({
      act: [],
      status: { phase: 'Succeeded', totalpods: 0, drainProgress: 100 },
    }),
    given('pods that are ending', nodeMaintenance, {
      object: { ...object, status: { totalpods: 4, evictionPods: 4 } },
      others: [node('a'), pod('web-0', 'a', { deletionTimestamp: '2030-01-01T00:00:00Z' })],
    }).returns({ act: [], status: { phase: 'Running', pendingPods: ['shop/web-0'], drainProgress: 75 } }),
  ])('with %s', (_, holds) => holds())

  it('cordons its Node before it evicts, and leaves pods of DaemonSets and of the kubelet', async () => {
    const world = started()
    const cordonedAt: unknown[] = []
    world.before = ({ verb }) => {
      if (verb === 'evict') cordonedAt.push(nodeOf(world)?.spec?.unschedulable)
    }
    await world.runUntilIdle()
    expect(cordonedAt).toEqual([true, true])
    expect(podsOf(world)).toEqual(['web-1', 'proxy-a', 'logs-x'])
    expect(nodeOf(world)?.metadata.labels).toEqual({
      zone: 'x',
      'remediation.medik8s.io/exclude-from-remediation': 'true',
    })
    expect(nodeOf(world, 'b')?.spec?.unschedulable).toBeUndefined()
    expect(world.object?.status).toMatchObject({
      phase: 'Succeeded',
      totalpods: 4,
      evictionPods: 2,
      pendingPods: [],
      drainProgress: 100,
    })
  })

  it('waits for a disruption budget, and says so', async () => {
    const world = started()
    world.refuse(Pod, 'DisruptionBudget', 'db-0')
    await world.runUntilIdle()
    expect(world.object?.status).toMatchObject({ phase: 'Running', pendingPods: ['shop/db-0'], drainProgress: 50 })
    expect(world.object?.status?.lastError).toContain('db-0')
    world.admit(Pod)
    await world.advance(60)
    expect(world.object?.status).toMatchObject({ phase: 'Succeeded', drainProgress: 100 })
    expect(world.object?.status?.lastError).toBeUndefined()
  })

  it('gives the Node back when it is deleted, as far as nobody else has cordoned it', async () => {
    const world = started()
    await world.runUntilIdle()
    world.delete()
    await world.runUntilIdle()
    expect(world.object).toBeUndefined()
    expect(nodeOf(world)?.spec?.unschedulable).toBeUndefined()
    expect(nodeOf(world)?.metadata.labels).toEqual({ zone: 'x' })
  })

  it('stays with its Node', () => {
    expect(() => started().edit({ spec: { nodeName: 'b' } })).toThrow('create another NodeMaintenance')
  })
})
