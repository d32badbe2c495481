import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { type Act, CertificateSigningRequest, Deployment, Node, Pod, type Reconciler, reconciler, Secret } from '#sdk'
import { PAUSED_ANNOTATION } from '#spec'
import { lawsOf, type Scenario, type Simulation, simulate } from '#testing'
import { approver, Shift, shift } from '../e2e/acts.ts'

const pod = (name: string, label = 'a', more: { metadata?: object; spec?: object } = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace: 'default', labels: { shift: label }, ...more.metadata },
  spec: more.spec ?? {},
})
const web = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'web', namespace: 'default' },
  spec: { replicas: 1 },
}
const ALL = { evict: 'a', bind: { label: 'b', node: 'n' }, scale: { name: 'web', replicas: 3 } }
const object = (spec: object = { evict: 'a' }) => Shift.of({ metadata: { name: 's', namespace: 'default' }, spec })
const started = (spec?: object, others: KubeObject[] = [pod('a-0'), pod('a-1'), pod('b-0', 'b'), web]) =>
  simulate(shift, { objects: [object(spec), ...others] }) as Simulation
const acts = (world: Pick<Simulation, 'writes'>, from = 0) =>
  world.writes
    .slice(from)
    .filter(({ verb }) => ['evict', 'bind', 'scale', 'approve', 'deny'].includes(verb))
    .map(({ verb, object: { metadata } }) => `${verb} ${metadata.name}`)
const PAUSED = { [PAUSED_ANNOTATION]: 'true' }
const isPaused = ({ object }: Simulation) => object?.metadata.annotations?.[PAUSED_ANNOTATION] !== undefined
const statusOf = (world: Simulation) => world.object?.status as Record<string, unknown> | undefined
const reconciled = (world: Simulation) =>
  (statusOf(world)?.['conditions'] as { type: string; reason: string; message: string }[] | undefined)?.find(
    ({ type }) => type === 'Reconciled',
  )

const scenario: Scenario<typeof Shift> = {
  objects: [object(ALL), pod('a-0'), pod('a-1'), pod('b-0', 'b'), web],
  steps: [
    ['a pod comes', (world) => world.create(pod('a-2'))],
    ['it scales down', (world) => world.edit({ spec: { scale: { replicas: 1 } } })],
    ['somebody else scales', (world) => world.patch(Deployment, { spec: { replicas: 7 } })],
    ['it evicts others', (world) => world.edit({ spec: { evict: 'b' } })],
  ],
}

describe('a function that acts', () => {
  it.each(lawsOf(shift, scenario))('%s', (_, holds) => holds())
})

describe('acts', () => {
  it('evict, bind and scale what the function observes', async () => {
    const world = started(ALL)
    await world.runUntilIdle()
    expect(world.list(Pod).map(({ metadata, spec }) => [metadata.name, spec?.nodeName])).toEqual([['b-0', 'n']])
    expect(world.list(Deployment)[0]?.spec?.replicas).toBe(3)
    expect(acts(world)).toEqual(['evict a-0', 'evict a-1', 'bind b-0', 'scale web'])
    expect(statusOf(world)).toMatchObject({ left: 0 })
  })

  it('are shown by a dry run, which performs none', async () => {
    const world = started(ALL)
    expect(acts({ writes: await world.dryRun() })).toHaveLength(4)
    expect(world.list(Pod)).toHaveLength(3)
  })

  it.each([
    ['Approve', 'Approved'],
    ['Deny', 'Denied'],
  ])('%s gives a CertificateSigningRequest the condition %s, once', async (wanted, type) => {
    const metadata = { name: 'r', annotations: { 'example.com/wants': wanted } }
    const request = CertificateSigningRequest.of({ metadata, spec: { request: '', signerName: 'example.com/client' } })
    const world = simulate(approver, { objects: [request] })
    await world.runUntilIdle()
    expect(world.object?.status?.conditions).toEqual([
      { type, status: 'True', reason: 'Checked', message: 'by the test' },
    ])
    expect(world.writes).toHaveLength(1)
  })
})

describe('a request of a signer that is not declared', () => {
  const requested = (name: string, signerName: string) =>
    CertificateSigningRequest.of({ metadata: { name }, spec: { request: '', signerName } })
  const Requests = { ...CertificateSigningRequest, within: 'Cluster' } as const
  const signing = reconciler({
    name: 'signing',
    for: Shift,
    related: [Requests],
    acts: [
      { ...CertificateSigningRequest, act: 'Approve', signers: ['example.com/client'], within: 'Cluster' },
      { ...CertificateSigningRequest, act: 'Approve', signers: ['example.org/*'], within: 'Cluster' },
    ],
    reconcile: ({ related }) => ({
      act: related(Requests)
        .filter(({ status }) => status?.conditions === undefined)
        .map((on) => ({ act: 'Approve', on, reason: 'Known' })),
    }),
  })

  it('is not approved: the object shows why, and the others are approved', async () => {
    const world = simulate(signing, {
      objects: [
        object(),
        requested('a', 'example.com/client'),
        requested('b', 'example.com/other'),
        requested('c', 'example.org/any'),
        requested('d', 'example.org.evil/any'),
      ],
    })
    await world.runUntilIdle()
    expect(acts(world)).toEqual(['approve a', 'approve c'])
    const said = reconciled(world)
    expect(said).toMatchObject({ reason: 'Forbidden' })
    expect(said?.message).toContain('cannot approve CertificateSigningRequest b: its signer is example.com/other')
    expect(said?.message).toContain('its signer is example.org.evil/any')
  })
})

describe('an eviction that a budget does not allow', () => {
  const waiting = async () => {
    const world = started()
    world.refuse(Pod, 'DisruptionBudget', 'a-0')
    await world.runUntilIdle()
    return world
  }

  it('waits, is told to the function, and is no failure', async () => {
    const world = await waiting()
    expect(world.failure).toBeUndefined()
    expect(acts(world)).toEqual(['evict a-1'])
    expect(statusOf(world)).toEqual({ left: 1, waits: 'DisruptionBudget', observedGeneration: 1 })
    expect(world.timer).toEqual(new Date('2030-01-01T00:00:05Z'))
  })

  it('is sent again after 5, 10, 20, 40 and 60 seconds, and at no change before', async () => {
    const world = await waiting()
    const sent: number[] = []
    world.before = ({ verb }) => {
      if (verb === 'evict') sent.push((world.now.getTime() - Date.parse('2030-01-01T00:00:00Z')) / 1000)
    }
    for (let second = 0; second < 200; second++) {
      world.patch(Pod, { metadata: { annotations: { second: `${second}` } } })
      await world.runUntilIdle()
      await world.advance(1)
    }
    expect(sent).toEqual([5, 15, 35, 75, 135, 195])
  })

  it('changes the status once, not in each run', async () => {
    const world = await waiting()
    const { length } = world.writes
    await world.advance(300)
    expect(world.writes.slice(length)).toEqual([])
  })

  it('is told to the function until its time, although it is not asked for any more', async () => {
    const world = await waiting()
    world.edit({ spec: { evict: 'none' } })
    await world.runUntilIdle()
    expect(statusOf(world)).toMatchObject({ left: 0, waits: 'DisruptionBudget' })
    await world.advance(5)
    expect(statusOf(world)?.['waits']).toBeUndefined()
  })

  it('is performed when the budget allows it', async () => {
    const world = await waiting()
    world.admit()
    await world.advance(5)
    expect(world.list(Pod).map(({ metadata }) => metadata.name)).toEqual(['b-0'])
    expect(statusOf(world)).toEqual({ left: 0, observedGeneration: 1 })
  })
})

describe('an object that goes', () => {
  it('is not kept by an act that has changed nothing', async () => {
    const scales = reconciler({
      name: 'going',
      for: Shift,
      related: [Deployment],
      acts: [{ ...Deployment, act: 'Scale' }],
      reconcile: () => undefined,
      finalize: ({ related }) => ({ act: related(Deployment).map((on) => ({ act: 'Scale', on, replicas: 3 })) }),
    })
    const world = simulate(scales, { objects: [object(), web] })
    await world.runUntilIdle()
    world.delete()
    await world.runUntilIdle()
    await world.advance(5)
    expect([world.object, acts(world)]).toEqual([undefined, ['scale web', 'scale web']])
  })

  it('is not kept by an eviction that waits, if the function does not ask for it any more', async () => {
    const evicts = reconciler({
      name: 'going',
      for: Shift,
      related: [Pod],
      acts: [{ ...Pod, act: 'Evict' }],
      reconcile: ({ related }) => ({ act: related(Pod).map((on) => ({ act: 'Evict', on })) }),
      finalize: () => undefined,
    })
    const world = simulate(evicts, { objects: [object(), pod('a-0')] })
    world.refuse(Pod, 'DisruptionBudget')
    await world.runUntilIdle()
    expect(world.timer).toEqual(new Date('2030-01-01T00:00:05Z'))
    world.delete()
    await world.runUntilIdle()
    expect([world.object, world.now]).toEqual([undefined, new Date('2030-01-01T00:00:00Z')])
  })
})

describe('an act', () => {
  it('is not performed on a version that the function has not seen: it decides again', async () => {
    const world = started({ scale: { name: 'web', replicas: 3 } })
    world.before = ({ verb }) => {
      if (verb === 'scale' && world.list(Deployment)[0]?.spec?.replicas === 1)
        world.patch(Deployment, { spec: { replicas: 3 } })
    }
    await world.runUntilIdle()
    expect(acts(world)).toEqual([])
    expect(world.list(Deployment)[0]?.spec?.replicas).toBe(3)
  })

  it('that others undo is repeated after a pause, which grows', async () => {
    const world = started({ scale: { name: 'web', replicas: 3 } })
    for (let second = 0; second < 100; second++) {
      await world.runUntilIdle()
      world.patch(Deployment, { spec: { replicas: 1 } })
      await world.advance(1)
    }
    expect(acts(world).length).toBeLessThan(7)
    await world.advance(60)
    expect(world.list(Deployment)[0]?.spec?.replicas).toBe(3)
  })

  it.each([
    ['is not sent once the object of the function is paused', { metadata: { annotations: PAUSED } }, []],
    ['is decided again once it is edited', { spec: { evict: 'b' } }, ['evict b-0']],
  ])('%s', async (_, edit, sent) => {
    const world = started()
    world.before = ({ verb }) => {
      if (verb === 'evict' && world.object?.metadata.generation === 1 && !isPaused(world)) world.edit(edit)
    }
    await world.runUntilIdle()
    expect(acts(world)).toEqual(sent)
  })

  it('that takes the place of another one waits too, unless the object of the function was edited', async () => {
    const more = reconciler({
      name: 'more',
      for: Shift,
      related: [Deployment],
      acts: [{ ...Deployment, act: 'Scale' }],
      reconcile: ({ related }) => ({
        act: related(Deployment).map((on) => ({ act: 'Scale', on, replicas: (on.spec?.replicas ?? 0) + 1 })),
      }),
    })
    const world = simulate(more, { objects: [object(), web] })
    await world.advance(100)
    expect(acts(world)).toHaveLength(5)
    world.edit({ spec: { evict: 'b' } })
    await world.runUntilIdle()
    expect(acts(world)).toHaveLength(6)
  })

  it('of which the object is gone is done', async () => {
    const world = started()
    world.before = ({ verb, object: one }) => {
      if (verb === 'evict' && world.memory.find(one) !== undefined) world.memory.delete(one)
    }
    await world.runUntilIdle()
    expect([world.failure, acts(world), statusOf(world)?.['left']]).toEqual([undefined, [], 0])
  })

  it('that is refused is shown on the object, with the others performed', async () => {
    const world = started()
    world.refuse(Pod, 'Forbidden', 'a-0')
    await world.runUntilIdle()
    expect(acts(world)).toEqual(['evict a-1'])
    expect(reconciled(world)).toMatchObject({ reason: 'Forbidden', message: expect.stringContaining('evict Pod') })
    world.admit()
    await world.advance(1)
    expect([acts(world), reconciled(world)?.reason]).toEqual([['evict a-1', 'evict a-0'], 'Reconciled'])
  })

  it('is performed before the object is finalized or deleted', async () => {
    const left: number[] = []
    const going = reconciler({
      name: 'going',
      for: Shift,
      related: [Pod],
      acts: [{ ...Pod, act: 'Evict' }],
      reconcile: () => undefined,
      finalize: ({ related }) => ({ act: related(Pod).map((on) => ({ act: 'Evict', on })) }),
    })
    const world = simulate(going, { objects: [object(), pod('a-0', 'a', { metadata: { finalizers: ['x/y'] } })] })
    await world.runUntilIdle()
    world.delete()
    world.before = ({ verb }) => void (verb === 'finalizers' && left.push(world.list(Pod).length))
    await world.runUntilIdle()
    expect([world.object === undefined, world.list(Pod).length]).toEqual([false, 1])
    world.patch(Pod, { metadata: { finalizers: null } })
    await world.runUntilIdle()
    expect([world.object, left]).toEqual([undefined, [0]])
  })
})

describe('an outcome is refused that', () => {
  const returning = async (act: unknown[], more: Partial<Reconciler> = {}) => {
    const wrong = reconciler({
      name: 'wrong',
      for: Shift,
      related: [Pod, { ...Deployment, within: 'Cluster' }],
      acts: [
        { ...Pod, act: 'Evict' },
        { ...Deployment, act: 'Scale' },
      ],
      reconcile: () => ({ act: act as Act[] }),
      ...more,
    } as never)
    const away = { ...web, metadata: { name: 'web', namespace: 'other' } }
    const world = simulate(wrong, { objects: [object(), pod('a-0'), web, away] })
    await expect(world.runUntilIdle()).rejects.toMatchObject({ reason: 'InvalidOutcome' })
    expect([world.failure?.name, acts(world)]).toEqual(['TerminalError', []])
    return world.failure?.message
  }

  it.each([
    [
      'acts on a kind without the declaration',
      { act: 'Bind', on: pod('a-0'), node: 'n' },
      `add { ...Pod, act: 'Bind' }`,
    ],
    ['acts on an object that it does not observe', { act: 'Evict', on: pod('other') }, 'does not observe it'],
    [
      'acts outside of the namespace',
      { act: 'Scale', replicas: 1, on: { ...web, metadata: { name: 'web', namespace: 'other' } } },
      `within: 'Cluster'`,
    ],
    ['has an act without a value', { act: 'Scale', on: web }, 'replicas'],
    ['has an unknown act', { act: 'Exec', on: pod('a-0') }, 'act'],
    ['has an act without an object', { act: 'Evict' }, 'on'],
  ])('%s', async (_, act, said) => {
    expect(await returning([act])).toContain(said)
  })

  it('has two acts on one object', async () => {
    const evict = { act: 'Evict', on: pod('a-0') }
    expect(await returning([evict, evict])).toContain('twice')
  })
})

describe('a declaration is refused that', () => {
  const declaring = (one: object) => () =>
    reconciler({
      name: 'wrong',
      for: Shift,
      related: [Pod, Node, Secret],
      acts: [one as never],
      reconcile: () => undefined,
    })

  it.each([
    ['is of a kind that is not observed', { ...Deployment, act: 'Scale' }, 'add Deployment to "related"'],
    ['evicts something else', { ...Node, act: 'Evict' }, 'Evict and Bind act on pods'],
    ['approves something else', { ...Node, act: 'Approve', signers: ['a/b'] }, 'Approve and Deny act on'],
    ['has signers for nothing', { ...Pod, act: 'Evict', signers: ['a/b'] }, 'they alone need signers'],
    ['has an unknown act', { ...Pod, act: 'Exec' }, 'act'],
    ['has an unknown option', { ...Pod, act: 'Evict', grace: 1 }, 'grace'],
  ])('%s', (_, one, said) => {
    expect(declaring(one)).toThrow(said)
  })
})

describe('the law of acts', () => {
  it('finds a function that asks again for what is there', async () => {
    const again = reconciler({
      name: 'again',
      for: Shift,
      related: [Deployment],
      acts: [{ ...Deployment, act: 'Scale' }],
      reconcile: ({ related }) => ({ act: related(Deployment).map((on) => ({ act: 'Scale', on, replicas: 3 })) }),
    })
    const rows = lawsOf(again, { objects: [object(), web] }).filter(([law]) => law.startsWith('asks for no act'))
    expect(rows).toHaveLength(1)
    await expect(rows[0]?.[1]()).rejects.toThrow('it asks for an act again whose result is there')
  })
})
