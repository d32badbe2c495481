import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import {
  ConfigMap,
  Deployment,
  Job,
  kind,
  Pod,
  type Readiness,
  readinessOf,
  reconciler,
  removeStages,
  resource,
  Secret,
  type Stage,
  type StageOptions,
  stages,
  z,
} from '#sdk'
import { simulate } from '#testing'

const named = (name: string, more: object = {}) => ({ metadata: { name, generation: 2, ...more } })
const of = (apiVersion: string, kind: string, status: object = {}, more: object = {}): KubeObject => ({
  apiVersion,
  kind,
  ...named('x', more),
  status,
})
const is = (type: string, status = 'True', more: object = {}) => ({ conditions: [{ type, status, ...more }] })
const counted = { observedGeneration: 2, replicas: 1, updatedReplicas: 1, readyReplicas: 1 }

describe('the readiness of', () => {
  it.each<[what: string, object: KubeObject | undefined, ready: true | string | { failed: string }]>([
    ['nothing', undefined, 'it does not exist yet'],
    ['what is being deleted', of('v1', 'ConfigMap', {}, { deletionTimestamp: 'now' }), 'it is being deleted'],
    ['a Deployment that is rolled out', of('apps/v1', 'Deployment', counted), true],
    ['a Deployment without a pod', of('apps/v1', 'Deployment'), '0 of 1 replicas are ready'],
    [
      'a Deployment whose controller has not seen its change',
      of('apps/v1', 'Deployment', { ...counted, observedGeneration: 1 }),
      'its last change is not rolled out yet',
    ],
    [
      'a Deployment beyond its deadline',
      of('apps/v1', 'Deployment', is('Progressing', 'False', { reason: 'ProgressDeadlineExceeded' })),
      { failed: '0 of 1 replicas are ready, and its progress deadline is exceeded' },
    ],
    [
      'a StatefulSet',
      of('apps/v1', 'StatefulSet', { ...counted, updatedReplicas: 0 }),
      'its last change is not rolled out yet',
    ],
    ['a ReplicaSet', of('apps/v1', 'ReplicaSet', { observedGeneration: 2, replicas: 1, readyReplicas: 1 }), true],
    [
      'a DaemonSet with a node to come',
      of('apps/v1', 'DaemonSet', {
        observedGeneration: 2,
        desiredNumberScheduled: 3,
        numberReady: 2,
        updatedNumberScheduled: 3,
      }),
      '2 of 3 replicas are ready',
    ],
    [
      'a DaemonSet without a node',
      of('apps/v1', 'DaemonSet', { observedGeneration: 2, desiredNumberScheduled: 0, numberReady: 0 }),
      true,
    ],
    ['a Job that runs', of('batch/v1', 'Job', { active: 1 }), 'it is not complete yet'],
    ['a Job that is complete', of('batch/v1', 'Job', is('Complete')), true],
    [
      'a Job that has failed',
      of('batch/v1', 'Job', is('Failed', 'True', { reason: 'BackoffLimitExceeded' })),
      { failed: 'it has failed: BackoffLimitExceeded' },
    ],
    ['a Pod that is pending', of('v1', 'Pod', { phase: 'Pending' }), 'it has not started yet'],
    ['a Pod that has succeeded', of('v1', 'Pod', { phase: 'Succeeded', ...is('Ready', 'False') }), true],
    [
      'a Pod that has failed',
      of('v1', 'Pod', { phase: 'Failed', reason: 'Evicted' }),
      { failed: 'it has failed: Evicted' },
    ],
    ['what Kubernetes has without a status', of('v1', 'PersistentVolumeClaim', { phase: 'Pending' }), true],
    ['a RoleBinding', of('rbac.authorization.k8s.io/v1', 'RoleBinding'), true],
    [
      'a definition that is not served yet',
      of('apiextensions.k8s.io/v1', 'CustomResourceDefinition'),
      'it has no condition Ready or Available: wait, or give its stage "isReady"',
    ],
    [
      'what others define, without a status',
      of('gateway.networking.k8s.io/v1', 'Gateway'),
      'it has no condition Ready or Available: wait, or give its stage "isReady"',
    ],
    ['what others define, with its condition', of('cert-manager.io/v1', 'Certificate', is('Ready')), true],
    [
      'what others define, and is not ready',
      of('cert-manager.io/v1', 'Certificate', is('Ready', 'False', { reason: 'Issuing', message: 'a moment' })),
      'Ready is False: Issuing: a moment',
    ],
    [
      'a condition of an earlier generation',
      of('cert-manager.io/v1', 'Certificate', is('Ready', 'True', { observedGeneration: 1 })),
      'its controller has not seen its last change',
    ],
    [
      'a status of an earlier generation',
      of('example.com/v1', 'Thing', { observedGeneration: 1, ...is('Available') }),
      'its controller has not seen its last change',
    ],
  ])('%s', (_, object, ready) => {
    const expected: Readiness =
      ready === true
        ? { isReady: true, isFailed: false, message: '' }
        : typeof ready === 'string'
          ? { isReady: false, isFailed: false, message: ready }
          : { isReady: false, isFailed: true, message: ready.failed }
    expect(readinessOf(object)).toEqual(expected)
  })
})

const db = Deployment.of({ metadata: { name: 'db' } })
const migrate = Job.of({ metadata: { name: 'migrate' } })
const app = Deployment.of({ metadata: { name: 'app' } })
const settings = ConfigMap.of({ metadata: { name: 'settings' } })

const up = (one: KubeObject) => ({ ...one, status: { replicas: 1, updatedReplicas: 1, readyReplicas: 1 } })
const down = (one: KubeObject) => ({ ...one, status: {} })
const complete = { ...migrate, status: is('Complete') }
const broken = { ...migrate, status: is('Failed', 'True', { reason: 'BackoffLimitExceeded' }) }
const going = { deletionTimestamp: '2030-01-01T00:00:00Z' }

const sees = (observed: readonly KubeObject[], metadata: object = {}) => ({
  object: { metadata: { name: 'a', namespace: 'default', ...metadata } },
  owned: (of: never) => observed.filter(({ kind }) => kind === (of as { kind: string }).kind),
})
const order: Stage[] = [[settings, db], [migrate], [app]]
/** `db 1`, `app 3 Hold`. */
const inShort = ({ apply }: ReturnType<typeof stages>) =>
  apply.map(({ metadata, stage }) => [metadata.name, stage?.number, stage?.action].filter(Boolean).join(' '))
const without = (options: Partial<StageOptions>, at: number): Stage[] =>
  order.map((stage, index) => (index === at ? { objects: stage as [], ...options } : stage))
const STARTED = ['settings 1', 'db 1', 'migrate 2', 'app 3']

describe('an order of stages returns', () => {
  it.each<[what: string, observed: KubeObject[], returned: string[], waitsFor: string | undefined, given?: Stage[]]>([
    [
      'the first stage when nothing exists',
      [],
      ['settings 1', 'db 1', 'migrate 2 Hold', 'app 3 Hold'],
      'waits for ConfigMap settings: it does not exist yet; Deployment db: it does not exist yet (stage 1 of 3)',
    ],
    [
      'no second stage while one object of the first is not ready',
      [settings, down(db)],
      ['settings 1', 'db 1', 'migrate 2 Hold', 'app 3 Hold'],
      'waits for Deployment db: 0 of 1 replicas are ready (stage 1 of 3)',
    ],
    [
      'the next stage when all before are ready',
      [settings, up(db)],
      ['settings 1', 'db 1', 'migrate 2', 'app 3 Hold'],
      'waits for Job migrate: it does not exist yet (stage 2 of 3)',
    ],
    [
      'nothing beyond a Job that has failed, which is named',
      [settings, up(db), broken],
      ['settings 1', 'db 1', 'migrate 2', 'app 3 Hold'],
      'waits for Job migrate: it has failed: BackoffLimitExceeded (stage 2 of 3)',
    ],
    ['all when all is ready', [settings, up(db), complete, up(app)], STARTED, undefined],
    [
      'what exists as it is when an earlier stage is not ready any more',
      [settings, down(db), complete, up(app)],
      ['settings 1', 'db 1', 'migrate 2 Hold', 'app 3 Hold'],
      'waits for Deployment db: 0 of 1 replicas are ready (stage 1 of 3)',
    ],
    [
      'no new Job of a stage that is done, and does not wait for it',
      [settings, up(db), up(app)],
      ['settings 1', 'db 1', 'app 3'],
      undefined,
      without({ isDone: true }, 1),
    ],
    [
      'what exists of a stage that is done, apart from what waits',
      [settings, down(db), complete, up(app)],
      ['settings 1', 'db 1', 'migrate 2 Done', 'app 3 Hold'],
      'waits for Deployment db: 0 of 1 replicas are ready (stage 1 of 3)',
      without({ isDone: true }, 1),
    ],
    [
      'what the author calls ready',
      [settings, down(db), complete, up(app)],
      STARTED,
      undefined,
      without({ isReady: () => true }, 0),
    ],
    [
      'no next stage while the author calls one not ready',
      [settings, up(db), complete],
      ['settings 1', 'db 1', 'migrate 2', 'app 3 Hold'],
      'waits for Job migrate: "isReady" of its stage is false (stage 2 of 3)',
      without({ isReady: () => false }, 1),
    ],
    [
      'an unwanted stage until all after it are ready',
      [settings, up(db), complete, down(app)],
      ['settings 1', 'db 1', 'migrate 2 Hold', 'app 3'],
      'waits for Deployment app: 0 of 1 replicas are ready (stage 3 of 3)',
      without({ isWanted: false }, 1),
    ],
    [
      'the removal of an unwanted stage that nothing needs any more',
      [settings, up(db), complete, up(app)],
      ['settings 1', 'db 1', 'migrate 2 Remove', 'app 3'],
      'waits until Job migrate is gone (stage 2 of 3)',
      without({ isWanted: false }, 1),
    ],
    [
      'nothing of an unwanted stage that is gone',
      [settings, up(db), up(app)],
      ['settings 1', 'db 1', 'app 3'],
      undefined,
      without({ isWanted: false }, 1),
    ],
  ])('%s', (_, observed, returned, waitsFor, given = order) => {
    const staged = stages(sees(observed), given)
    expect([inShort(staged), staged.waitsFor]).toEqual([returned, waitsFor])
    expect(staged.condition.message).toBe(waitsFor)
  })

  it('a condition for each state: Waiting, Failed, Removing, Ready', () => {
    const reason = (observed: KubeObject[], given = order) => stages(sees(observed), given).condition.reason
    expect(reason([])).toBe('Waiting')
    expect(reason([settings, up(db), broken])).toBe('Failed')
    expect(reason([settings, up(db), complete, up(app)], without({ isWanted: false }, 1))).toBe('Removing')
    expect(reason([settings, up(db), complete, up(app)])).toBe('Ready')
  })

  it('the number of stages that are ready, from the first one on', () => {
    expect(stages(sees([settings, up(db), complete]), order).reached).toBe(2)
    expect(stages(sees([settings, down(db), complete, up(app)]), order).reached).toBe(0)
  })
})

describe('the removal of stages', () => {
  const removed = (observed: KubeObject[]) => removeStages(sees(observed, going), order)

  it('goes in reverse, each stage when the one after it is gone, and says what it waits for', () => {
    const left = [settings, up(db), complete, { ...app, metadata: { name: 'app', ...going } }]
    const seen: [string[], string | undefined][] = []
    for (; left.length > 0; left.pop()) seen.push([inShort(removed(left)), removed(left).waitsFor])
    expect(seen).toEqual([
      [
        ['settings 1 Hold', 'db 1 Hold', 'migrate 2 Hold', 'app 3 Remove'],
        'waits until Deployment app is gone (stage 3 of 3)',
      ],
      [['settings 1 Hold', 'db 1 Hold', 'migrate 2 Remove'], 'waits until Job migrate is gone (stage 2 of 3)'],
      [['settings 1 Remove', 'db 1 Remove'], 'waits until ConfigMap settings; Deployment db are gone (stage 1 of 3)'],
      [['settings 1 Remove'], 'waits until ConfigMap settings is gone (stage 1 of 3)'],
    ])
    expect(removed([]).waitsFor).toBeUndefined()
  })

  it('does not wait for what outlives its owner', () => {
    const annotations = { 'fairlead.dev/retained-for': 'Widget.example.com/a/u1' }
    expect(removed([{ ...settings, metadata: { ...settings.metadata, annotations } }])).toMatchObject({
      apply: [],
      waitsFor: undefined,
    })
  })
})

describe('a stage that changes one by one returns', () => {
  const [a, b, c] = ['a', 'b', 'c'].map((name) => Deployment.of({ metadata: { name } })) as [
    KubeObject,
    KubeObject,
    KubeObject,
  ]
  const returned = (...observed: KubeObject[]) =>
    stages(sees(observed), [{ objects: [a, b, c], oneByOne: true }]).apply.map(({ metadata, stage }) =>
      [metadata.name, stage?.number.toFixed(2), stage?.action].filter(Boolean).join(' '),
    )

  it.each<[what: string, observed: KubeObject[], expected: string[]]>([
    ['all at once when none exists', [], ['a 1.00', 'b 1.00', 'c 1.00']],
    [
      'each with a number of its own when all are ready: a run changes the first that differs',
      [up(a), up(b), up(c)],
      ['a 1.00', 'b 1.33', 'c 1.67'],
    ],
    [
      'no other while one is not ready, which may be mended',
      [up(a), down(b), up(c)],
      ['a 1.00 Hold', 'b 1.33', 'c 1.67 Hold'],
    ],
    ['no change while one is missing', [up(a), up(b)], ['a 1.00 Hold', 'b 1.33 Hold', 'c 1.00']],
  ])('%s', (_, observed, expected) => expect(returned(...observed)).toEqual(expected))
})

const Stack = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Stack',
  plural: 'stacks',
  spec: z.object({ image: z.string(), size: z.int32().default(3) }),
  status: z.object({}),
})
const layer = (image: string, index: number, kind: typeof Deployment | typeof ConfigMap = Deployment) =>
  (kind as typeof Deployment).of({ metadata: { name: `layer-${index}` }, spec: { image } as never })
const layers = ({ spec }: { spec: { image: string; size: number } }, of?: typeof ConfigMap) =>
  Array.from({ length: spec.size }, (_, index) => [layer(spec.image, index, of)])
const stackOf = (owns: typeof Deployment | typeof ConfigMap) =>
  reconciler({
    name: 'stack',
    for: Stack,
    owns: [owns],
    reconcile(run) {
      const { apply, condition } = stages(run, layers(run.object, owns as typeof ConfigMap))
      return { apply, conditions: [condition] }
    },
    finalize(run) {
      const { apply, waitsFor } = removeStages(run, layers(run.object, owns as typeof ConfigMap))
      return waitsFor === undefined ? undefined : { apply, requeueAfter: 60 }
    },
  })
const stack = (spec: object = {}) =>
  Stack.of({ metadata: { name: 'a', namespace: 'default' }, spec: { image: '1', ...spec } })

type Happening = ['edit', string] | ['up' | 'down' | 'lost', number]
const happening = fc.oneof(
  fc.tuple(fc.constant('edit' as const), fc.constantFrom('1', '2', '3')),
  fc.tuple(fc.constantFrom('up' as const, 'up' as const, 'down' as const, 'lost' as const), fc.nat(2)),
)

describe('whatever becomes ready, unready, lost or edited, in any order', () => {
  const world = () => simulate(stackOf(Deployment), { objects: [stack()] })
  type World = ReturnType<typeof world>
  const found = (of: World, at: number) => of.list(Deployment).find(({ metadata }) => metadata.name === `layer-${at}`)
  const report = (of: World, at: number, ready: number) => {
    const one = found(of, at)
    if (one === undefined) return
    const observedGeneration = one.metadata.generation ?? 0
    of.patch(
      Deployment,
      { status: { observedGeneration, replicas: 1, updatedReplicas: 1, readyReplicas: ready } },
      one.metadata.name,
    )
  }
  const allUp = async (of: World) => {
    for (let round = 0; round < 4; round++) {
      await of.runUntilIdle()
      for (let at = 0; at < 3; at++) report(of, at, 1)
    }
    await of.runUntilIdle()
  }
  const happens = (of: World, [what, which]: Happening) => {
    if (what === 'edit') of.edit({ spec: { image: which } })
    else if (what !== 'lost') report(of, which, what === 'up' ? 1 : 0)
    else if (found(of, which)) of.delete(Deployment, `layer-${which}`)
  }

  it('nothing is written before all stages before it are ready as they are declared, nothing is deleted, and the end is whole', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(happening as fc.Arbitrary<Happening>, { maxLength: 14 }), async (happenings) => {
        const of = world()
        of.before = ({ verb, object }) => {
          expect(verb).not.toBe('delete')
          if (object.kind !== 'Deployment') return
          const at = Number(object.metadata.name.slice('layer-'.length))
          for (let before = 0; before < at; before++) {
            const one = found(of, before)
            expect([(one?.spec as { image?: string })?.image, readinessOf(one).isReady]).toEqual([
              of.object?.spec.image,
              true,
            ])
          }
        }
        for (const one of happenings) {
          happens(of, one)
          await of.runUntilIdle()
        }
        await allUp(of)
        const image = of.object?.spec.image
        expect(of.list(Deployment).map(({ spec }) => (spec as { image?: string }).image)).toEqual([image, image, image])
        expect(of.object?.status?.conditions).toMatchObject([{ type: 'Ready', status: 'True' }])
      }),
      { numRuns: 60 },
    )
  })

  it('a change that is refused holds back those of later stages', async () => {
    const of = world()
    await allUp(of)
    of.refuse(Deployment, 'Forbidden', 'layer-0')
    of.edit({ spec: { image: '2' } })
    await of.runUntilIdle()
    expect(of.list(Deployment).map(({ spec }) => (spec as { image?: string }).image)).toEqual(['1', '1', '1'])
    of.admit()
    await of.advance(60)
    await allUp(of)
    expect(of.list(Deployment).map(({ spec }) => (spec as { image?: string }).image)).toEqual(['2', '2', '2'])
  })

  it('a change one by one touches no ready object while another one is not ready', async () => {
    const rolling = reconciler({
      name: 'stack',
      for: Stack,
      owns: [Deployment],
      reconcile(run) {
        const { apply, condition } = stages(run, [{ objects: layers(run.object).flat(), oneByOne: true }])
        return { apply, conditions: [condition] }
      },
    })
    const of = simulate(rolling, { objects: [stack()] })
    await allUp(of)
    of.edit({ spec: { image: '2' } })
    const changed: string[] = []
    of.before = ({ object }) => {
      if (object.kind !== 'Deployment') return
      changed.push(object.metadata.name)
      expect([0, 1, 2].filter((at) => !readinessOf(found(of, at)).isReady)).toEqual([])
    }
    await allUp(of)
    expect(changed).toEqual(['layer-0', 'layer-1', 'layer-2'])
  })

  it('the removal deletes the last one first', async () => {
    const of = world()
    await allUp(of)
    of.delete()
    await of.runUntilIdle()
    const deleted = of.writes.filter(({ verb }) => verb === 'delete').map(({ object }) => object.metadata.name)
    expect(deleted).toEqual(['layer-2', 'layer-1', 'layer-0'])
    expect(of.object).toBeUndefined()
  })
})

describe('names with a version, whatever becomes ready, unready or edited, in any order', () => {
  const deployment = (name: string, image: string) =>
    Deployment.of({
      metadata: { name },
      spec: { selector: {}, template: { spec: { volumes: [{ configMap: { name: `settings-${image}` } }] } } } as never,
    })
  const versioned = reconciler({
    name: 'versioned',
    for: Stack,
    owns: [Deployment, ConfigMap, Secret],
    reconcile(run) {
      const { image } = run.object.spec
      const db = Deployment.of({ metadata: { name: 'db' }, spec: { image } as never })
      const { apply, condition } = stages(run, [[db], [deployment(`app-${image}`, image)], [deployment('web', image)]])
      const settings = ConfigMap.of({ metadata: { name: `settings-${image}` } })
      const grant = Secret.of({ metadata: { name: `grant-${image}` } })
      return { apply: [...apply, settings, grant], conditions: [condition] }
    },
  })
  const change = fc.oneof(
    fc.tuple(fc.constant('edit' as const), fc.constantFrom('1', '2', '3')),
    fc.tuple(fc.constantFrom('up' as const, 'up' as const, 'down' as const), fc.constantFrom('db', 'app', 'web')),
  )

  it('what still runs keeps what it mounts and is not missed, what nothing uses goes at once, and the end is whole', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(change, { maxLength: 14 }), async (changes) => {
        const of = simulate(versioned, { objects: [stack()] })
        const names = (kind: typeof Deployment | typeof ConfigMap | typeof Secret) =>
          of.list(kind as typeof ConfigMap).map(({ metadata }) => metadata.name)
        const report = (which: string, ready: number) => {
          for (const { metadata } of of.list(Deployment).filter((one) => one.metadata.name.startsWith(which))) {
            const counts = { replicas: 1, updatedReplicas: 1, readyReplicas: ready }
            of.patch(Deployment, { status: { ...counts, observedGeneration: metadata.generation ?? 0 } }, metadata.name)
          }
        }
        of.before = ({ verb, object }) => {
          if (verb !== 'delete') return
          const { name } = object.metadata
          const apps = names(Deployment).filter((one) => one.startsWith('app-'))
          const isLastApp = object.kind === 'Deployment' && apps.length === 1 && apps[0] === name
          const isMounted = object.kind === 'ConfigMap' && JSON.stringify(of.list(Deployment)).includes(`"${name}"`)
          expect({ name, isLastApp, isMounted }).toEqual({ name, isLastApp: false, isMounted: false })
        }
        for (const [what, which] of changes) {
          if (what === 'edit') of.edit({ spec: { image: which } })
          else report(which, what === 'up' ? 1 : 0)
          await of.runUntilIdle()
          expect(names(Secret)).toEqual([`grant-${of.object?.spec.image}`])
        }
        for (let round = 0; round < 4; round++) {
          await of.runUntilIdle()
          for (const which of ['db', 'app', 'web']) report(which, 1)
        }
        await of.runUntilIdle()
        const image = of.object?.spec.image
        expect([names(Deployment).sort(), names(ConfigMap)]).toEqual([
          [`app-${image}`, 'db', 'web'],
          [`settings-${image}`],
        ])
        expect(of.object?.status?.conditions).toMatchObject([{ type: 'Ready', status: 'True' }])
      }),
      { numRuns: 60 },
    )
  })
})

it('a run goes through any number of stages that are ready at once, and through their removal', async () => {
  const of = simulate(stackOf(ConfigMap), { objects: [stack({ size: 120 })] })
  await of.run()
  expect([of.failure, of.list(ConfigMap)]).toMatchObject([undefined, { length: 120 }])
  of.delete()
  await of.run()
  expect([of.failure, of.list(ConfigMap), of.object]).toEqual([undefined, [], undefined])
})

it('a run changes any number of objects one by one that are ready at once', async () => {
  const rolling = reconciler({
    name: 'rolling',
    for: Stack,
    owns: [ConfigMap],
    reconcile: (run) => ({
      apply: stages(run, [{ objects: layers(run.object, ConfigMap).flat(), oneByOne: true }]).apply,
    }),
  })
  const of = simulate(rolling, { objects: [stack({ size: 120 })] })
  await of.run()
  of.edit({ spec: { image: '2' } })
  await of.run()
  const images = of.list(ConfigMap).map((one) => (one as { spec?: { image?: string } }).spec?.image)
  expect([of.failure, new Set(images), images.length]).toEqual([undefined, new Set(['2']), 120])
})

it.each<[what: string, names: (calls: number) => string[]]>([
  ['another stage', () => ['c']],
  ['another object in a stage of its own', (calls) => Array.from({ length: calls }, (_, index) => `c-${index}`)],
])('a function that invents %s with each call counts as one that never settles', async (_, names) => {
  let calls = 0
  const endless = reconciler({
    name: 'endless',
    for: Stack,
    owns: [ConfigMap],
    reconcile: () => {
      calls++
      return {
        apply: names(calls).map((name, index) => ({
          ...ConfigMap.of({ metadata: { name }, data: { n: name === 'c' ? `${calls}` : '' } }),
          stage: { number: calls + index },
        })),
      }
    },
  })
  const of = simulate(endless, { objects: [stack()] })
  await of.run()
  expect(of.failure?.name).toBe('UnsettledError')
})

it('a kind that the reconciler does not own is refused by its name', async () => {
  const wrong = reconciler({ name: 'wrong', for: Stack, reconcile: (run) => ({ apply: stages(run, [[app]]).apply }) })
  const of = simulate(wrong, { objects: [stack()] })
  await expect(of.runUntilIdle()).rejects.toMatchObject({ reason: 'UndeclaredKind' })
  expect(of.failure?.message).toContain('asks for Deployment.v1.apps: add it to its "owns"')
})

it('objects of kinds with a schema, and names that are left out, are found', () => {
  const Thing = kind({ group: 'example.com', version: 'v1', kind: 'Thing', plural: 'things' })
  const unnamed = { ...Thing.of({ metadata: {} }) } as KubeObject
  const observed = { ...Thing.of({ metadata: { name: 'a' } }), status: is('Ready') } as KubeObject
  expect(stages(sees([observed]), [[unnamed], [Pod.of({ metadata: { name: 'p' } })]]).reached).toBe(1)
})
