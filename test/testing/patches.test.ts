import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { ConfigMap, Deployment, fieldsOf, manifest, Namespace, Node, reconciler, Secret } from '#sdk'
import { MOST_PATCHED, patchedBy, patchManagerOf } from '#spec'
import { lawsOf, type Scenario, type Simulation, simulate } from '#testing'
import { Crash } from '../../sdk/testing/simulated-run.ts'
import { Drain, drain, Gateway } from '../e2e/drain.ts'

const node = (name: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name },
  spec: { podCIDR: '10/8' },
})
const space = (name: string, team = 'red'): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Namespace',
  metadata: { name, labels: { team } },
})
const theirs = {
  type: 'Accepted',
  status: 'True',
  reason: 'Accepted',
  message: '',
  lastTransitionTime: '2029-01-01T00:00:00Z',
}
const OTHERS: KubeObject[] = [
  node('a'),
  node('b'),
  space('red-1'),
  space('red-2'),
  space('blue', 'blue'),
  {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web', namespace: 'default' },
    spec: { paused: false },
  },
  {
    apiVersion: 'example.net/v1',
    kind: 'Gateway',
    metadata: { name: 'edge', namespace: 'default' },
    status: { conditions: [theirs] },
  },
]
const ALL = { nodes: ['a', 'b'], team: 'red', replicas: 3, reachable: true }
const object = (spec: object = { nodes: ['a'] }, name = 'd') =>
  Drain.of({ metadata: { name, namespace: 'default' }, spec })
const started = async (spec?: object): Promise<Simulation> => {
  const world = simulate(drain, { objects: [object(spec), ...OTHERS] }) as Simulation
  await world.runUntilIdle()
  return world
}
const cordoned = (world: Simulation) =>
  world.list(Node).flatMap(({ metadata, spec }) => (spec?.unschedulable === true ? [metadata.name] : []))
const labelled = (world: Simulation) =>
  world.list(Namespace).flatMap(({ metadata }) => (metadata.labels?.['draining'] === 'yes' ? [metadata.name] : []))
const statusOf = (world: Simulation, type: string) =>
  (
    world.object?.status as { conditions?: { type: string; status: string; reason: string; message: string }[] }
  )?.conditions?.find((one) => one.type === type)
const gateway = (world: Simulation) =>
  ((world.list(Gateway)[0] as KubeObject).status as { conditions: Record<string, string>[] }).conditions
const sent = (world: Simulation) => world.writes.map(({ verb, object: { kind } }) => `${verb} ${kind}`)
/** The objects of others as they were created, without what the cluster sets. */
const untouched = (world: Simulation) =>
  world.memory
    .all()
    .filter(({ kind }) => kind !== 'Drain')
    .map(({ metadata: { name, namespace, labels }, ...others }) => ({
      ...others,
      metadata: { name, ...(namespace && { namespace }), ...(labels && { labels }) },
    }))

const scenario: Scenario = {
  objects: [object(ALL), ...OTHERS],
  steps: [
    ['it drains another node', (world) => world.edit({ spec: { nodes: ['b'] } })],
    ['a namespace comes', (world) => world.create(space('red-3'))],
    ['it names another team', (world) => world.edit({ spec: { team: 'blue' } })],
    ['it gives back', (world) => world.edit({ spec: { replicas: null, reachable: false } })],
  ],
}

describe('a function that sets fields of others', () => {
  it.each(lawsOf(drain, scenario))('%s', (_, holds) => holds())
})

describe('fields of others', () => {
  it('are exactly those that are returned, by a manager of the primary', async () => {
    const world = await started(ALL)
    expect(cordoned(world)).toEqual(['a', 'b'])
    expect(labelled(world)).toEqual(['red-1', 'red-2'])
    expect(world.list(Deployment)[0]?.spec).toEqual({ paused: false, replicas: 3 })
    expect(gateway(world).map(({ type, status }) => [type, status])).toEqual([
      ['Accepted', 'True'],
      ['Reachable', 'True'],
    ])
    expect(gateway(world)[0]).toEqual(theirs)
    expect(patchManagerOf('x'.repeat(253), world.object!).length).toBeLessThanOrEqual(128)
  })

  it('are recorded before they are set, and the record knows when they are', async () => {
    const world = await started()
    expect(sent(world)).toEqual([
      'finalizers Drain',
      'metadata Drain',
      'setFields Node',
      'metadata Drain',
      'status Drain',
    ])
  })

  it('cause no write while nothing changes, also in another process', async () => {
    const world = (await started(ALL)).copy()
    world.patch(Node, { status: { phase: 'Running' } })
    await world.runUntilIdle()
    expect(world.writes).toEqual([])
  })

  it('keep the time of a condition until its status changes', async () => {
    const world = await started(ALL)
    const { lastTransitionTime } = gateway(world)[1] ?? {}
    expect(lastTransitionTime).toBe('2030-01-01T00:00:00Z')
    world.pass(60)
    world.patch(Node, { status: {} })
    await world.runUntilIdle()
    expect(gateway(world)[1]).toMatchObject({ lastTransitionTime })
    world.edit({ spec: { reachable: false } })
    await world.runUntilIdle()
    expect(gateway(world)[1]).toMatchObject({ status: 'False', lastTransitionTime: '2030-01-01T00:01:00Z' })
  })

  it('are given back when they are not returned any more, and when the object goes', async () => {
    const world = await started(ALL)
    world.edit({ spec: { nodes: ['b'], replicas: null } })
    await world.runUntilIdle()
    expect(cordoned(world)).toEqual(['b'])
    expect(world.list(Deployment)[0]?.spec).toEqual({ paused: false })
    world.delete()
    await world.runUntilIdle()
    expect(world.object).toBeUndefined()
    expect(untouched(world)).toEqual(OTHERS)
  })

  it('are given back without a call of the function, before its finalizer', async () => {
    const seen: string[] = []
    const finalizing = {
      ...drain,
      finalize: () => {
        seen.push('finalize')
        return {}
      },
    }
    const world = simulate(finalizing, { objects: [object(), ...OTHERS] }) as Simulation
    await world.runUntilIdle()
    world.before = ({ verb }) => void seen.push(verb)
    world.delete()
    await world.runUntilIdle()
    expect(seen).toEqual(['giveBack', 'metadata', 'finalize', 'finalizers'])
    expect(cordoned(world)).toEqual([])
  })

  it('that a run has added before it died are given back, although they are not returned any more', async () => {
    const marks = reconciler({
      name: 'marks',
      for: Drain,
      patches: [Node],
      reconcile: ({ object: { spec } }) => ({
        patch: [
          fieldsOf(Node, {
            metadata: { name: 'a', labels: Object.fromEntries(spec.nodes.map((name) => [name, 'x'])) },
          }),
        ],
      }),
    })
    const labelsOf = (world: Simulation) => world.list(Node)[0]?.metadata.labels
    const world = simulate(marks, { objects: [object({ nodes: ['one'] }), node('a')] }) as Simulation
    await world.runUntilIdle()
    let isSet = false
    world.before = ({ verb }) => {
      if (isSet) throw new Crash()
      isSet = verb === 'setFields'
    }
    world.edit({ spec: { nodes: ['one', 'two'] } })
    await expect(world.runUntilIdle()).rejects.toThrow(Crash)
    expect(labelsOf(world)).toEqual({ one: 'x', two: 'x' })
    const next = world.copy()
    next.edit({ spec: { nodes: ['one'] } })
    await next.runUntilIdle()
    expect(labelsOf(next)).toEqual({ one: 'x' })
  })

  it('are given back when the object leaves the selection, and its finalizer goes', async () => {
    const selecting = { ...drain, selector: 'serve=yes' }
    const labelledDrain = { ...object(), metadata: { ...object().metadata, labels: { serve: 'yes' } } }
    const world = simulate(selecting, { objects: [labelledDrain, ...OTHERS] }) as Simulation
    await world.runUntilIdle()
    expect(cordoned(world)).toEqual(['a'])
    world.edit({ metadata: { labels: { serve: null } } })
    await world.runUntilIdle()
    expect(cordoned(world)).toEqual([])
    expect(world.object?.metadata.finalizers ?? []).toEqual([])
  })

  it('of two objects of one function stay until both have given them back', async () => {
    const first = await started()
    const second = simulate(drain, { objects: [object(undefined, 'e')] }) as Simulation
    // Both in one cluster: the second object is created beside the first.
    first.create(object(undefined, 'e'))
    const other = first.memory.find(object(undefined, 'e'))!
    const manager = patchManagerOf('drain', other)
    first.memory.applyFields(fieldsOf(Node, { metadata: { name: 'a' }, spec: { unschedulable: true } }), manager)
    first.delete()
    await first.runUntilIdle()
    expect(cordoned(first)).toEqual(['a'])
    first.memory.applyFields(fieldsOf(Node, { metadata: { name: 'a' } }), manager)
    expect(cordoned(first)).toEqual([])
    expect(second.object).toBeDefined()
  })

  it('are not taken from another manager: the condition says whose they are, and it is tried less and less often', async () => {
    const world = await started()
    world.patch(Node, { spec: { unschedulable: false } }, 'a')
    let tries = 0
    world.before = ({ verb }) => void (tries += verb === 'setFields' ? 1 : 0)
    for (let seconds = 0; seconds < 600; seconds++) {
      await world.run()
      world.pass(1)
    }
    expect(tries).toBeLessThan(20)
    expect(cordoned(world)).toEqual([])
    expect(statusOf(world, 'Reconciled')).toMatchObject({ status: 'False', reason: 'FieldConflict' })
    expect(statusOf(world, 'Reconciled')?.message).toContain('Node a')
    world.delete()
    await world.runUntilIdle()
    expect(world.object).toBeUndefined()
  })

  it.each([
    ['a Node', { spec: { unschedulable: null } }, Node, 'a'],
    ['a status', { status: { conditions: [theirs] } }, Gateway, 'edge'],
  ])(
    'that others remove from %s are set again, less and less often, and the fight is shown',
    async (_, patch, of, name) => {
      let world = await started({ nodes: ['a'], reachable: true })
      let sets = 0
      for (let seconds = 0; seconds < 300; seconds++) {
        world.patch(of, patch, name)
        world = world.copy()
        world.before = ({ verb }) => void (sets += verb === 'setFields' ? 1 : 0)
        await world.runUntilIdle()
        await world.advance(1)
      }
      expect(sets).toBeGreaterThan(5)
      expect(sets).toBeLessThan(30)
      expect(statusOf(world, 'Contested')).toMatchObject({ status: 'True' })
    },
  )

  it('of an object that does not exist are a condition, and are set when it comes', async () => {
    const world = await started({ nodes: ['late'] })
    expect(statusOf(world, 'Reconciled')).toMatchObject({ status: 'False', reason: 'NotFound' })
    world.create(node('late'))
    await world.runUntilIdle()
    expect(cordoned(world)).toEqual(['late'])
    expect(statusOf(world, 'Reconciled')).toMatchObject({ status: 'True' })
  })

  it('stay recorded, and keep the finalizer, while they cannot be given back', async () => {
    const world = await started(ALL)
    world.refuse(Node)
    world.delete()
    await world.run()
    expect(statusOf(world, 'Reconciled')).toMatchObject({ status: 'False', reason: 'Forbidden' })
    expect(patchedBy(world.object!, 'drain').map(({ kind: of, name }) => `${of} ${name}`)).toEqual(['Node a', 'Node b'])
    expect(labelled(world)).toEqual([])
    world.admit()
    await world.advance(2000)
    expect(world.object).toBeUndefined()
    expect(untouched(world)).toEqual(OTHERS)
  })

  it('of as many other objects as there is room for are set when the former ones are given back', async () => {
    const all = Array.from({ length: 2 * MOST_PATCHED }, (_, index) => `n-${index}`)
    const [former, later] = [all.slice(0, MOST_PATCHED), all.slice(MOST_PATCHED)]
    const world = simulate(drain, { objects: [object({ nodes: former }), ...all.map(node)] }) as Simulation
    await world.runUntilIdle()
    expect(cordoned(world)).toEqual(former)
    world.edit({ spec: { nodes: later } })
    await world.runUntilIdle()
    expect(cordoned(world)).toEqual(later)
    world.edit({ spec: { nodes: all } })
    await world.run()
    expect(world.failure?.message).toContain(`${MOST_PATCHED} at most`)
    expect(cordoned(world)).toEqual(later)
  })

  it('of more objects than there is room for keep the timer, so that the next outcome gives back', async () => {
    const until = new Date('2030-01-01T06:00:00Z')
    const night = reconciler({
      name: 'night',
      for: Drain,
      patches: [Node],
      reconcile: ({ object: { spec }, now }) => ({
        patch:
          now < until
            ? spec.nodes.map((name) => fieldsOf(Node, { metadata: { name }, spec: { unschedulable: true } }))
            : [],
        ...(now < until && { requeueAt: until }),
      }),
    })
    const nodes = Array.from({ length: MOST_PATCHED }, (_, index) => `n-${index}`)
    const world = simulate(night, { objects: [object({ nodes }), ...nodes.map(node), node('late')] }) as Simulation
    await world.runUntilIdle()
    expect(cordoned(world)).toHaveLength(MOST_PATCHED)
    world.edit({ spec: { nodes: [...nodes, 'late'] } })
    await world.run()
    expect(world.failure?.message).toContain('Nothing of this outcome is written, and what is set stays')
    expect(world.timer).toEqual(until)
    world.pass(6 * 3600)
    await world.runUntilIdle()
    expect(cordoned(world)).toEqual([])
  })

  it('that are refused do not keep the others waiting for the time at which they are given back', async () => {
    const until = new Date('2030-01-01T06:00:00Z')
    const night = reconciler({
      name: 'night',
      for: Drain,
      patches: [Node],
      reconcile: ({ now }) => ({
        patch:
          now < until
            ? ['a', 'b'].map((name) => fieldsOf(Node, { metadata: { name }, spec: { unschedulable: true } }))
            : [],
        ...(now < until && { requeueAt: until }),
      }),
    })
    const world = simulate(night, { objects: [object(), node('a'), node('b')] }) as Simulation
    world.refuse(Node, 'AdmissionDenied', 'b')
    await world.runUntilIdle()
    await world.advance(6 * 3600 - 1)
    expect(cordoned(world)).toEqual(['a'])
    // A failed run is followed by a pause of a minute at most.
    await world.advance(60)
    expect(cordoned(world)).toEqual([])
  })

  it.each([1, 0.001])(
    'that are refused are not sent more often because the function asks to run after %s s',
    async (seconds) => {
      const polling = reconciler({
        name: 'polling',
        for: Drain,
        patches: [Node],
        reconcile: () => ({
          patch: [fieldsOf(Node, { metadata: { name: 'a' }, spec: { unschedulable: true } })],
          requeueAfter: seconds,
        }),
      })
      const world = simulate(polling, { objects: [object(), node('a')] }) as Simulation
      world.refuse(Node)
      let tries = 0
      world.before = ({ verb }) => void (tries += verb === 'setFields' ? 1 : 0)
      await world.run()
      await world.advance(3600)
      expect(tries).toBeLessThan(75)
      expect(tries).toBeGreaterThan(50)
    },
  )

  it('are not recorded for a copy of the object', async () => {
    const world = await started()
    const { uid: _, ...copied } = world.object!.metadata
    const copy = { ...world.object, metadata: { ...copied, name: 'copy' } } as KubeObject
    expect(patchedBy({ ...copy, metadata: { ...copy.metadata, uid: 'other' } }, 'drain')).toEqual([])
    expect(patchedBy(world.object!, 'drain')).toHaveLength(1)
  })

  const returning = async (patch: KubeObject[], patches = drain.patches ?? []) => {
    const wrong = reconciler({ name: 'wrong', for: Drain, patches, reconcile: () => ({ patch }) })
    const world = simulate(wrong, { objects: [object(), ...OTHERS] })
    await world.run()
    return world.failure?.message
  }
  it.each<[what: string, fields: KubeObject, said: string]>([
    ['a kind that is not declared', fieldsOf(Secret, { metadata: { name: 's' } }), 'add the kind to "patches"'],
    [
      'a status of a kind without it',
      fieldsOf(Node, { metadata: { name: 'a' }, status: { phase: 'x' } }),
      'with status: true',
    ],
    [
      'fields beside a status',
      { ...fieldsOf(Gateway, { metadata: { name: 'e' }, status: {} }), spec: {} },
      'return two',
    ],
    [
      'a finalizer',
      { ...node('a'), metadata: { name: 'a', finalizers: ['x/y'] } },
      'metadata.finalizers cannot be set',
    ],
    [
      'a key of Fairlead',
      fieldsOf(Node, { metadata: { name: 'a', labels: { 'fairlead.dev/x': 'y' } } }),
      'belongs to Fairlead',
    ],
    [
      'the record of another object',
      fieldsOf(Node, { metadata: { name: 'a', annotations: { 'patched.fairlead.dev/x': '{}' } } }),
      'belongs to Fairlead',
    ],
    [
      'keys of a Secret that nobody would manage',
      { ...fieldsOf(Secret, { metadata: { name: 's' } }), stringData: { a: 'b' } },
      'in base64',
    ],
    [
      'another namespace',
      fieldsOf(Deployment, { metadata: { name: 'w', namespace: 'kube-system' }, spec: {} }),
      'within',
    ],
  ])('are refused: %s', async (_, fields, said) => {
    const patches = [...(drain.patches ?? []), ...(said === 'in base64' ? [Secret] : [])]
    expect(await returning([fields], patches)).toContain(said)
  })

  it('are refused on the object itself, and twice on one object', async () => {
    const self = { ...object(), spec: { team: 'x' } }
    expect(await returning([self], [{ ...Drain, kind: 'Drain' }])).toContain('"status" and "metadata"')
    expect(await returning([node('a'), node('a')])).toContain('twice')
  })
})

describe('fields that are taken over', () => {
  const scale = reconciler({
    name: 'scale',
    for: Drain,
    patches: [{ ...Deployment, takes: ['spec.replicas'] }],
    reconcile: ({ object: { spec } }) => ({
      patch:
        spec.replicas === undefined
          ? []
          : [
              fieldsOf(Deployment, {
                metadata: { name: 'web', namespace: 'default', labels: { by: 'scale' } },
                spec: { replicas: spec.replicas },
              }),
            ],
    }),
  })
  const web = (spec: object): KubeObject => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web', namespace: 'default' },
    spec: { paused: false, ...spec },
  })
  const scaled = async (theirs: object, replicas = 0) => {
    const world = simulate(scale, { objects: [object({ replicas }), web(theirs)] }) as Simulation
    await world.runUntilIdle()
    return world
  }
  const deployment = (world: Simulation) => world.list(Deployment)[0] as KubeObject
  const ends: [string, (world: Simulation) => void][] = [
    ['when they are not returned any more', (world) => world.edit({ spec: { replicas: null } })],
    ['when the object goes', (world) => world.delete()],
  ]

  describe.each(ends)('%s', (_, end) => {
    it.each<[string, object, (world: Simulation) => void, object]>([
      ['get the value of before', { replicas: 5 }, () => {}, { replicas: 5 }],
      [
        'get it also if the function has returned it last',
        { replicas: 5 },
        (world) => world.edit({ spec: { replicas: 5 } }),
        { replicas: 5 },
      ],
      [
        'get the one that another manager has set meanwhile',
        { replicas: 5 },
        (world) => world.patch(Deployment, { spec: { replicas: 7 } }),
        { replicas: 7 },
      ],
      ['are removed if there was none', {}, () => {}, {}],
    ])('%s', async (_what, before, meanwhile, after) => {
      const world = await scaled(before)
      expect(deployment(world)).toMatchObject({ spec: { replicas: 0 }, metadata: { labels: { by: 'scale' } } })
      meanwhile(world)
      await world.runUntilIdle()
      expect(deployment(world).spec).toMatchObject({ replicas: world.list(Drain)[0]?.spec.replicas })
      expect(statusOf(world, 'Reconciled')).toBeUndefined()
      end(world)
      await world.runUntilIdle()
      expect(deployment(world)).toMatchObject({ spec: { paused: false, ...after } })
      expect(deployment(world).spec).toEqual({ paused: false, ...after })
      expect(world.memory.withFieldsOf('patched.')).toEqual([])
    })
  })

  it('get the value of before also if their record was lost, as with kubectl replace', async () => {
    const world = await scaled({ replicas: 5 })
    world.edit({ metadata: { annotations: null, finalizers: null } })
    await world.runUntilIdle()
    expect(deployment(world).spec).toMatchObject({ replicas: 0 })
    expect(patchedBy(world.object!, 'scale')).toMatchObject([{ before: { 'spec.replicas': 5 } }])
    world.edit({ spec: { replicas: null } })
    await world.runUntilIdle()
    expect(deployment(world)).toMatchObject({ spec: { paused: false, replicas: 5 } })
    expect(JSON.stringify(deployment(world).metadata)).not.toContain('before_')
  })

  it.each([2, 5])('get it also if the manifest of kubectl replace has another spec: replicas %i', async (replicas) => {
    const world = await scaled({ replicas: 5 })
    world.edit({ spec: { replicas }, metadata: { annotations: null, finalizers: null } })
    await world.runUntilIdle()
    expect(deployment(world).spec).toMatchObject({ replicas })
    world.delete()
    await world.runUntilIdle()
    expect(deployment(world).spec).toEqual({ paused: false, replicas: 5 })
  })

  const replaced = (world: Simulation) => world.edit({ metadata: { annotations: null, finalizers: null } })
  it('get it also if others have removed the note of it before, which is set again, less and less often', async () => {
    let world = await scaled({ replicas: 5 })
    let sets = 0
    for (let seconds = 0; seconds < 300; seconds++) {
      const annotations = Object.keys(deployment(world).metadata.annotations ?? {}).map((name) => [
        name,
        seconds % 2 ? null : 'x',
      ])
      world.patch(Deployment, { metadata: { annotations: Object.fromEntries(annotations) } })
      world = world.copy()
      world.before = ({ verb }) => void (sets += verb === 'setFields' ? 1 : 0)
      await world.runUntilIdle()
      await world.advance(1)
    }
    expect(sets).toBeGreaterThan(5)
    expect(sets).toBeLessThan(60)
    await world.advance(600)
    replaced(world)
    await world.runUntilIdle()
    world.delete()
    await world.runUntilIdle()
    expect(deployment(world).spec).toEqual({ paused: false, replicas: 5 })
  })

  it.each<[what: string, theirs: object]>([
    ['nobody has set', {}],
    ['somebody has set to the same value', { replicas: 0 }],
    ['somebody has set', { replicas: 3 }],
  ])(
    'of another object with that name, which %s, do not get the value of before of the first one',
    async (_, theirs) => {
      const world = await scaled({ replicas: 50 })
      world.memory.delete(deployment(world))
      await world.runUntilIdle()
      world.create(web(theirs))
      await world.runUntilIdle()
      expect(deployment(world).spec).toMatchObject({ replicas: 0 })
      expect(statusOf(world, 'Reconciled')).not.toMatchObject({ status: 'False' })
      world.edit({ spec: { replicas: null } })
      await world.runUntilIdle()
      expect(deployment(world).spec).toEqual({ paused: false, ...theirs })
    },
  )

  it.each([5000, 'many'])('do not get a value that somebody has written into a note: %s', async (before) => {
    const world = await scaled({ replicas: 5 })
    const [name = ''] = Object.keys(deployment(world).metadata.annotations ?? {})
    world.edit({ spec: { replicas: null } })
    await world.runUntilIdle()
    const note = JSON.stringify({ 'spec.replicas': { before, set: 5 } })
    world.patch(Deployment, { metadata: { annotations: { [name]: note } } })
    world.edit({ spec: { replicas: 5 } })
    await world.runUntilIdle()
    expect(patchedBy(world.object!, 'scale')).toMatchObject([{ before: { 'spec.replicas': 5 } }])
    world.delete()
    await world.runUntilIdle()
    expect(deployment(world).spec).toEqual({ paused: false, replicas: 5 })
  })

  it('do not get a value of another type of a note that somebody has written while the record was lost', async () => {
    const world = await scaled({ replicas: 5 })
    const [name = ''] = Object.keys(deployment(world).metadata.annotations ?? {})
    replaced(world)
    const note = JSON.stringify({ 'spec.replicas': { before: 'many', set: 0 } })
    world.patch(Deployment, { metadata: { annotations: { [name]: note } } })
    await world.runUntilIdle()
    world.delete()
    await world.runUntilIdle()
    expect(deployment(world).spec).toEqual({ paused: false, replicas: 0 })
  })

  it('are taken also where somebody has copied the note of a value of before', async () => {
    const world = await scaled({ replicas: 5 })
    const { annotations } = deployment(world).metadata
    world.edit({ spec: { replicas: null } })
    await world.runUntilIdle()
    const copied = Object.keys(annotations ?? {}).map((name) => [name, '{"spec.replicas":{"before":9,"set":5}}'])
    world.patch(Deployment, { metadata: { annotations: Object.fromEntries(copied) } })
    world.edit({ spec: { replicas: 0 } })
    await world.runUntilIdle()
    expect(deployment(world).spec).toMatchObject({ replicas: 0 })
    world.delete()
    await world.runUntilIdle()
    expect(deployment(world).spec).toEqual({ paused: false, replicas: 5 })
  })

  const several = reconciler({
    name: 'several',
    for: Drain,
    patches: [{ ...Deployment, takes: ['spec.replicas'] }],
    reconcile: ({ object: { spec } }) => ({
      patch: spec.nodes.map((name) =>
        fieldsOf(Deployment, { metadata: { name, namespace: 'default' }, spec: { replicas: 0 } }),
      ),
    }),
  })
  const rows = lawsOf(several, {
    objects: [
      object({ nodes: ['web', 'api'] }),
      web({ replicas: 2 }),
      { ...web({ replicas: 3 }), metadata: { name: 'api', namespace: 'default' } },
    ],
    steps: [
      ['none', (world) => world.edit({ spec: { nodes: [] } })],
      [
        ['one', (world) => world.patch(Deployment, { spec: { replicas: 7 } }, 'web')],
        ['all', (world) => world.edit({ spec: { nodes: ['api', 'web'] } })],
      ],
    ],
  })
  it.each(rows)('of several objects: %s', (_, holds) => holds())

  it('are not shared with another object of ours, even at one value: it has their value of before, and returns it', async () => {
    const world = simulate(scale, { objects: [object({ replicas: 0 }), web({ replicas: 5 })] }) as Simulation
    world.create(object({ replicas: 0 }, 'other'))
    const manager = patchManagerOf('scale', world.memory.find(object({}, 'other'))!)
    const having = (spec: object) => fieldsOf(Deployment, { metadata: { name: 'web', namespace: 'default' }, ...spec })
    world.memory.applyFields(having({ spec: { replicas: 0 } }), manager)
    await world.runUntilIdle()
    expect(statusOf(world, 'Reconciled')).toMatchObject({ reason: 'FieldConflict' })
    world.memory.applyFields(having({}), manager, having({ spec: { replicas: 5 } }))
    await world.advance(300)
    expect(deployment(world).spec).toMatchObject({ replicas: 0 })
    world.edit({ spec: { replicas: null } })
    await world.runUntilIdle()
    expect(deployment(world).spec).toMatchObject({ replicas: 5 })
  })

  it('belong to nobody afterwards: another manager changes them, and the function does not', async () => {
    const world = await scaled({ replicas: 5 })
    world.edit({ spec: { replicas: null } })
    await world.runUntilIdle()
    world.patch(Deployment, { spec: { replicas: 6 } })
    world.delete()
    await world.runUntilIdle()
    expect(deployment(world).spec).toEqual({ paused: false, replicas: 6 })
  })

  it('have their value of before after a death at each write', async () => {
    let deaths = 0
    for (let isDead = true; isDead; deaths++) {
      const world = simulate(scale, { objects: [object({ replicas: 0 }), web({ replicas: 5 })] }) as Simulation
      let writes = 0
      world.before = () => {
        if (writes++ === deaths) throw new Crash()
      }
      isDead = await world.runUntilIdle().then(
        () => false,
        (error: unknown) => error instanceof Crash,
      )
      const next = world.copy()
      next.delete()
      await next.runUntilIdle()
      expect(deployment(next).spec).toEqual({ paused: false, replicas: 5 })
    }
    expect(deaths).toBeGreaterThan(6)
  })

  it('are taken back less and less often, and the fight is shown', async () => {
    let world = await scaled({ replicas: 5 })
    let sets = 0
    for (let seconds = 0; seconds < 300; seconds++) {
      world.patch(Deployment, { spec: { replicas: 5 } })
      world = world.copy()
      world.before = ({ verb }) => void (sets += verb === 'setFields' ? 1 : 0)
      await world.runUntilIdle()
      await world.advance(1)
    }
    expect(statusOf(world, 'Reconciled')).toBeUndefined()
    expect(sets).toBeGreaterThan(5)
    expect(sets).toBeLessThan(60)
    expect(statusOf(world, 'Contested')).toMatchObject({
      status: 'True',
      message: expect.stringMatching(/Deployment default\/web: "another manager" has changed .spec.replicas/),
    })
  })

  it('are those that are declared, whatever the record says, and no others', async () => {
    const world = await scaled({ replicas: 5 })
    const annotation = 'patched.fairlead.dev/scale'
    const record = JSON.parse(world.object?.metadata.annotations?.[annotation] ?? '') as { objects: object[] }
    const forged = { 'metadata.labels.by': 'another', 'spec.paused': true, 'spec.replicas': 5 }
    const objects = record.objects.map((one) => ({ ...one, before: forged }))
    world.edit({ metadata: { annotations: { [annotation]: JSON.stringify({ ...record, objects }) } } })
    world.patch(Deployment, { metadata: { labels: { by: 'another' } } })
    await world.run()
    expect(statusOf(world, 'Reconciled')).toMatchObject({ status: 'False', reason: 'FieldConflict' })
    world.delete()
    await world.runUntilIdle()
    expect(deployment(world)).toMatchObject({
      spec: { paused: false, replicas: 5 },
      metadata: { labels: { by: 'another' } },
    })
  })

  it('are not taken together with a field that is not declared, which the condition names while it waits', async () => {
    const both = reconciler({
      name: 'both',
      for: Drain,
      patches: [{ ...Deployment, takes: ['spec.replicas'] }],
      reconcile: () => ({
        patch: [
          fieldsOf(Deployment, {
            metadata: { name: 'web', namespace: 'default' },
            spec: { replicas: 0, revisionHistoryLimit: 1 },
          }),
        ],
      }),
    })
    const theirs = { replicas: 5, revisionHistoryLimit: 9 }
    const world = simulate(both, { objects: [object(), web(theirs)] }) as Simulation
    for (let times = 0; times < 8; times++) {
      await world.run()
      world.pass(60)
    }
    await world.run()
    world.pass(1)
    await world.run()
    expect(deployment(world).spec).toMatchObject(theirs)
    expect(statusOf(world, 'Reconciled')).toMatchObject({
      reason: 'FieldConflict',
      message: expect.stringContaining('has .spec.revisionHistoryLimit; not tried again before'),
    })
  })

  it('are set in one run with all else that the function writes', async () => {
    const busy = reconciler({
      name: 'busy',
      for: Drain,
      owns: [ConfigMap],
      writes: ['Metadata'],
      patches: [{ ...Deployment, takes: ['spec.replicas'] }],
      reconcile: ({ owned }) => ({
        apply: owned(ConfigMap).length === 0 ? [map('a')] : [map('a'), map('b')],
        patch: [fieldsOf(Deployment, { metadata: { name: 'web', namespace: 'default' }, spec: { replicas: 0 } })],
        metadata: { labels: { busy: 'yes' } },
        status: { phase: 'Done' },
      }),
    })
    const map = (name: string) => ConfigMap.of({ metadata: { name } })
    const world = simulate(busy, { objects: [object(), web({ replicas: 5 })] })
    await world.run()
    expect(world.failure).toBeUndefined()
    expect(world.object?.status).toMatchObject({ phase: 'Done' })
  })

  it.each([
    ['a kind whose contents are confidential', Secret, { type: 'x' }, 'confidential'],
    ['more than one value', Deployment, { spec: { replicas: { a: 1 } } }, 'is not one value'],
  ])('are not those of %s', async (_, of, fields, said) => {
    const taking = reconciler({
      name: 'wrong',
      for: Drain,
      patches: [{ ...of, takes: ['spec.replicas'] }],
      reconcile: () => ({
        patch: [{ ...fieldsOf(of, { metadata: { name: 'web', namespace: 'default' } }), ...fields }],
      }),
    })
    const world = simulate(taking, { objects: [object(), web({})] })
    await world.run()
    expect(world.failure?.message).toContain(said)
  })

  it('are refused in a declaration: of the status, and other than paths in the spec', () => {
    const taking = (more: object) => () =>
      manifest(reconciler({ name: 'wrong', for: Drain, patches: [{ ...Deployment, ...more }], reconcile: () => ({}) }))
    expect(taking({ takes: ['metadata.name'] })).toThrow('spec.replicas')
    expect(taking({ takes: ['spec.replicas'], status: true })).toThrow('takes is for the spec')
  })
})
