import { ConfigMap, type KubeObject, Namespace, Pod, ResourceQuota, RoleBinding } from 'fairlead'
import { lawsOf, outcomeOf, ownedBy, type Scenario, type Simulation, simulate } from 'fairlead/testing'
import { describe, expect, it } from 'vitest'
import { Workspace } from './resource.ts'
import { workspace } from './workspace.ts'

const NOW = '2030-01-01T00:00:00.000Z'
const spec = { admins: 'team-a-admins', template: { namespace: 'platform', name: 'defaults' } }
const metadata = { name: 'team-a', creationTimestamp: NOW }
const given = (more: Partial<Parameters<typeof Workspace.of>[0]['spec']> = {}) =>
  Workspace.of({ metadata, spec: { ...spec, ...more } })
const template = ConfigMap.of({
  metadata: { name: 'defaults', namespace: 'platform', labels: { 'tenancy.example.com/template': '' } },
  data: { 'settings.yaml': 'workspace: {{name}}, admins: {{admins}}' },
})
const pod = Pod.of({ metadata: { name: 'job', namespace: 'team-a' }, spec: { containers: [] } })
const elsewhere = Pod.of({ metadata: { name: 'job', namespace: 'team-b' }, spec: { containers: [] } })

type World = Simulation<typeof Workspace>
const world = async (...objects: KubeObject[]): Promise<World> => {
  const simulation = simulate(workspace, { objects, now: NOW })
  await simulation.runUntilIdle()
  return simulation
}
const statusOf = ({ object }: World) => object?.status
const readyOf = (simulation: World) => statusOf(simulation)?.conditions?.find(({ type }) => type === 'Ready')
const namesOf = (simulation: World) =>
  simulation.memory
    .all()
    .filter(({ kind }) => kind !== 'Workspace')
    .map(({ kind, metadata }) => `${kind} ${metadata.name}`)
const record = expect.stringMatching(/^ConfigMap workspace-team-a-/)
const PARTS = ['Namespace team-a', 'ResourceQuota limits', 'NetworkPolicy same-namespace', 'ConfigMap settings']

describe('a Workspace', () => {
  it('has a namespace with a quota, admins, a network policy and settings from its template', async () => {
    const one = await world(given(), template)
    expect(namesOf(one).sort()).toEqual(['ConfigMap defaults', 'RoleBinding admins', ...PARTS].sort())
    expect(one.list(ConfigMap).at(-1)?.data).toEqual({ 'settings.yaml': 'workspace: team-a, admins: team-a-admins' })
    expect(statusOf(one)).toMatchObject({ phase: 'Active', runningPods: 0 })
    expect(readyOf(one)).toMatchObject({ status: 'True', reason: 'Active' })
  })

  it.each([
    ['is missing', []],
    ['has no label', [{ ...template, metadata: { name: 'defaults', namespace: 'platform' } }]],
    ['is in another namespace', [{ ...template, metadata: { ...template.metadata, namespace: 'other' } }]],
  ])('has all but the settings if its template %s', async (_, objects) => {
    const one = await world(given(), ...objects)
    expect(readyOf(one)).toMatchObject({ status: 'False', reason: 'TemplateMissing' })
    expect(namesOf(one)).toContain('NetworkPolicy same-namespace')
    expect(namesOf(one)).not.toContain('ConfigMap settings')
  })

  it('keeps its settings when the template is deleted', async () => {
    const one = await world(given(), template)
    one.delete(ConfigMap, 'defaults')
    await one.runUntilIdle()
    expect(one.list(ConfigMap)).toMatchObject([{ metadata: { name: 'settings' } }])
  })

  it('counts the pods of its namespace that run', async () => {
    const succeeded = { ...pod, metadata: { ...pod.metadata, name: 'done' }, status: { phase: 'Succeeded' } }
    expect(statusOf(await world(given(), template, pod, succeeded, elsewhere))?.runningPods).toBe(1)
  })

  it('names the forbidden part', async () => {
    const one = await world(given(), template)
    one.refuse(RoleBinding, 'Forbidden')
    one.delete(RoleBinding)
    await one.runUntilIdle()
    expect(statusOf(one)?.phase).toBe('Pending')
    expect(readyOf(one)).toMatchObject({ status: 'False', reason: 'Forbidden', message: /^without admins: / })
  })
})

describe('its expiry', () => {
  it.each([
    ['is deleted', 'Delete', { deleteObject: true }],
    ['is archived', 'Archive', { status: { phase: 'Pending' } }],
  ] as const)('in time: it %s', async (_, onExpiry, outcome) => {
    const object = given({ expiresAfterSeconds: 60, onExpiry })
    const at = (now: string) => outcomeOf(workspace, { object, others: [template], now })
    expect(await at('2030-01-01T00:00:59Z')).toMatchObject({ requeueAt: '2030-01-01T00:01:00.000Z' })
    expect(await at('2030-01-01T00:01:00Z')).toMatchObject(outcome)
  })

  it('deletes the Workspace by a timer, and leaves a record', async () => {
    const one = await world(given({ expiresAfterSeconds: 60 }), template)
    await one.advance(60)
    expect(one.object).toBeUndefined()
    expect(namesOf(one)).toEqual(['ConfigMap defaults', record])
  })

  it('archives it: read-only, without new pods, and its namespace outlives it', async () => {
    const one = await world(given({ expiresAfterSeconds: 60, onExpiry: 'Archive' }), template)
    await one.advance(60)
    expect(statusOf(one)?.phase).toBe('Archived')
    expect(one.list(RoleBinding)).toMatchObject([{ metadata: { name: 'views' }, roleRef: { name: 'view' } }])
    expect(one.list(ResourceQuota)).toMatchObject([{ spec: { hard: { pods: '0' } } }])
    one.delete()
    await one.runUntilIdle()
    expect(one.object).toBeUndefined()
    expect(namesOf(one)).toEqual(expect.arrayContaining(['ConfigMap defaults', 'RoleBinding views', record, ...PARTS]))
  })

  it('is put off: the Workspace is active again, and garbage collection takes it along', async () => {
    const one = await world(given({ expiresAfterSeconds: 60, onExpiry: 'Archive' }), template)
    await one.advance(60)
    one.edit({ spec: { expiresAfterSeconds: 600 } })
    await one.runUntilIdle()
    expect(statusOf(one)?.phase).toBe('Active')
    one.delete()
    await one.runUntilIdle()
    expect(namesOf(one)).toEqual(['ConfigMap defaults', record])
  })
})

it('waits with its deletion until no pod runs in its namespace', async () => {
  const one = await world(given(), template, pod, elsewhere)
  one.delete()
  await one.runUntilIdle()
  expect(readyOf(one)).toMatchObject({ reason: 'PodsRunning', message: expect.stringContaining('1 running pods') })
  expect(one.list(Namespace)).toHaveLength(1)
  one.patch(Pod, { status: { phase: 'Succeeded' } })
  await one.runUntilIdle()
  expect(one.object).toBeUndefined()
  expect(one.list(Namespace)).toEqual([])
})

it('does not wait for pods in a namespace that is not its own', async () => {
  const taken = ownedBy(given(), Namespace.of({ metadata: { name: 'team-a' } }), 'other')
  const deleted = { object: given(), others: [taken, template, pod], finalizing: true }
  expect(await outcomeOf(workspace, deleted)).toMatchObject({ apply: [{ kind: 'ConfigMap', retain: true }] })
})

it('does not count what another function has created for it', async () => {
  const object = given()
  const other = ownedBy(object, Namespace.of({ metadata: { name: 'team-a' } }), 'other')
  expect(await outcomeOf(workspace, { object, others: [other, template] })).toMatchObject({
    status: { phase: 'Pending' },
    conditions: [{ reason: 'Pending' }],
  })
})

/** Plays the team, which ends its pods when the Workspace is being deleted: laws wait for the cluster only. */
function endPods({ object, memory }: World): void {
  if (object?.metadata.deletionTimestamp === undefined || memory.find(pod)?.['status'] !== undefined) return
  if (memory.find(pod) !== undefined) memory.patch(pod, { status: { phase: 'Succeeded' } })
}

const scenario = (onExpiry: 'Delete' | 'Archive'): Scenario<typeof Workspace> => ({
  objects: [given({ expiresAfterSeconds: 3600, onExpiry }), template],
  now: NOW,
  cluster: endPods,
  // It waits for the team, for as long as that takes.
  finalizeSeconds: Infinity,
  steps: [
    [
      ['the template changes', (one) => one.patch(ConfigMap, { data: { other: '{{name}}' } }, 'defaults')],
      ['a pod starts', (one) => one.create(pod)],
    ],
    ['the pod ends', (one) => one.patch(Pod, { status: { phase: 'Succeeded' } })],
    ['it expires', (one) => one.pass(3600)],
  ],
})
describe.each(['Delete', 'Archive'] as const)('with onExpiry: %s, it', (onExpiry) => {
  it.each(lawsOf(workspace, scenario(onExpiry)))('%s', (_, holds) => holds())
})
