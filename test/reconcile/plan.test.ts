import { describe, expect, it } from 'vitest'
import { ownershipMark, RECONCILER_ANNOTATION, RefusedError } from '#reconcile'
import type { OwnedResource } from '#spec'
import { DESIRED_ANNOTATION } from '../../reconcile/desired.ts'
import type { NoOps } from '../../reconcile/no-ops.ts'
import { parseOutcome } from '../../reconcile/outcome.ts'
import { ONLY_IF_ABSENT, type Plan, plan, type Write } from '../../reconcile/plan.ts'
import { refusedWrite, withoutRefused } from '../../reconcile/refusals.ts'
import type { World } from '../../reconcile/world.ts'
import {
  CONFIG_MAPS,
  child,
  createdFor,
  JOBS,
  ownedByWidget,
  PODS,
  SECRETS,
  widget,
  world,
} from '../dispatch/objects.ts'

const now = new Date('2030-01-01T00:00:00.000Z')
const WIDGETS = { group: 'example.com', version: 'v1', resource: 'widgets', kind: 'Widget' }
const owns = [PODS, CONFIG_MAPS, SECRETS, JOBS]

const planned = (observed: World, outcome: unknown, noOps: NoOps = {}): Plan =>
  plan({ for: WIDGETS, owns }, observed, parseOutcome(outcome), {
    identity: 'widget',
    now,
    noOps,
    isConfidential: ({ resource }) => resource === 'secrets',
  })

const pod = (name?: string) => ({ apiVersion: 'v1', kind: 'Pod', metadata: name === undefined ? {} : { name } })
const configMap = (name: string, data: object = { k: 'v' }, metadata: object = {}) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, ...metadata },
  data,
})
const inShort = ({ stages }: Plan): string[][] =>
  stages.map((stage) => stage.map(({ verb, object }) => `${verb} ${object.kind} ${object.metadata.name}`))

/** Returns the object in the server after an apply. */
function taken(write: Write | undefined, more: object = {}) {
  const { metadata, ...rest } = write!.object
  return child(write!.object.kind, metadata.name, {
    ...rest,
    metadata: { ...metadata, uid: 'uid-taken', resourceVersion: '201' },
    ...more,
  })
}

describe('planning the writes of an outcome', () => {
  it.each([
    ['nothing returned changes nothing', world(widget(), child('Pod', 'a')), undefined, []],
    ['apply left out changes nothing', world(widget(), child('Pod', 'a')), { requeueAfterSeconds: 1 }, []],
    ['an empty set deletes what is owned', world(widget(), child('Pod', 'a')), { apply: [] }, [['delete Pod a']]],
    ['what is absent is created', world(widget()), { apply: [pod('a')] }, [['create Pod a']]],
    ['CreateOnly: what is there stays as it is', world(widget(), child('Pod', 'a')), { apply: [pod('a')] }, []],
    ['an object without a name gets its owner’s', world(widget()), { apply: [pod()] }, [['create Pod w']]],
    [
      'what others need comes first, deletions last',
      world(widget(), child('Pod', 'old')),
      { apply: [pod('a'), configMap('c'), pod('b')] },
      [['apply ConfigMap c'], ['create Pod a', 'create Pod b'], ['delete Pod old']],
    ],
    [
      'what is being deleted is not deleted again',
      world(widget(), child('Pod', 'a', { metadata: { deletionTimestamp: 'now' } })),
      { apply: [] },
      [],
    ],
    [
      'what is being deleted is not applied any more',
      world(widget(), child('ConfigMap', 'c', { metadata: { deletionTimestamp: 'now' } })),
      { apply: [configMap('c')] },
      [],
    ],
    [
      'drift is repaired',
      world(widget(), child('ConfigMap', 'c', { data: { k: 'other' } })),
      { apply: [configMap('c')] },
      [['apply ConfigMap c']],
    ],
  ])('%s', (_, observed, outcome, expected) => {
    const result = planned(observed, outcome)
    expect(result.findings).toEqual([])
    expect(inShort(result)).toEqual(expected)
  })

  it('fills in namespace and controller reference, and drops what is the server’s own', () => {
    const returned = {
      ...pod('a'),
      metadata: { name: 'a', uid: 'x', resourceVersion: '7', managedFields: [] },
      status: { phase: 'Running' },
    }
    const [[write]] = planned(world(widget()), { apply: [returned] }).stages as [[Write]]
    expect(write.object).toEqual({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: {
        name: 'a',
        namespace: 'default',
        annotations: { [RECONCILER_ANNOTATION]: ownershipMark('widget', widget(), child('Pod', 'a')) },
        ownerReferences: [ownedByWidget()],
      },
    })
  })

  it('binds an apply to the uid that was observed, or to there being none', () => {
    const [[absent]] = planned(world(widget()), { apply: [configMap('c')] }).stages as [[Write]]
    expect(absent.object.metadata).toMatchObject({ resourceVersion: ONLY_IF_ABSENT })
    const created = createdFor(widget(), 'widget', child('ConfigMap', 'c'))
    const [[there]] = planned(world(widget(), created), { apply: [configMap('c')] }).stages as [[Write]]
    expect(there.object.metadata).toMatchObject({ uid: 'uid-c' })
    expect(there.object.metadata.resourceVersion).toBeUndefined()
  })

  it('adopts only the version that was observed: another reconciler may adopt the object at the same time', () => {
    const [[write]] = planned(world(widget(), child('ConfigMap', 'c')), { apply: [configMap('c')] }).stages as [[Write]]
    expect(write.object.metadata).toMatchObject({ uid: 'uid-c', resourceVersion: '200' })
  })

  it('Recreate: does not delete an object because it has no mark yet', () => {
    const outcome = { apply: [{ apiVersion: 'batch/v1', kind: 'Job', metadata: { name: 'j' }, spec: {} }] }
    const [[created]] = planned(world(widget()), outcome).stages as [[Write]]
    const { [RECONCILER_ANNOTATION]: _, ...annotations } = created.object.metadata.annotations!
    const unmarked = taken(created, { metadata: { ...taken(created).metadata, annotations } })
    expect(planned(world(widget(), unmarked), outcome).stages).toEqual([])
  })

  it('sends nothing when every desired field has its value and the desired state is the same', () => {
    const outcome = { apply: [configMap('c', { k: 'v' }, { labels: { a: 'b' } })] }
    const [[write]] = planned(world(widget()), outcome).stages as [[Write]]
    const server = taken(write, { data: { k: 'v', byOthers: 'x' } })
    expect(planned(world(widget(), server), outcome).stages).toEqual([])
  })

  it.each([
    ['ConfigMap', configMap('c')],
    ['Secret', { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' }, data: { k: 'dg==' } }],
    ['Job, under Recreate', { apiVersion: 'batch/v1', kind: 'Job', metadata: { name: 'j' }, spec: { image: 'a' } }],
  ])('leaves an observed object alone that is returned as it is: a %s', (_, object) => {
    const [[write]] = planned(world(widget()), { apply: [object] }).stages as [[Write]]
    const there = taken(write, { byOthers: 'x', status: { ready: 1 } })
    expect(planned(world(widget(), there), { apply: [there] }).stages).toEqual([])
    expect(planned(world(widget(), there), { apply: [{ ...there, more: 'y' }] }).stages).not.toEqual([])
  })

  it('applies what is declared as it was observed: only then its fields go when they are declared no longer', () => {
    const there = createdFor(widget(), 'widget', child('ConfigMap', 'c', { data: { k: 'v' } }))
    expect(inShort(planned(world(widget(), there), { apply: [configMap('c')] }))).toEqual([['apply ConfigMap c']])
  })

  it('marks an observed object that has no mark, also when it is returned as it is', () => {
    const unmarked = child('ConfigMap', 'c', { data: { k: 'v' } })
    expect(inShort(planned(world(widget(), unmarked), { apply: [unmarked] }))).toEqual([['apply ConfigMap c']])
  })

  it('sees that a field is no longer desired', () => {
    const [[write]] = planned(world(widget()), { apply: [configMap('c', { k: 'v', gone: 'x' })] }).stages as [[Write]]
    expect(inShort(planned(world(widget(), taken(write)), { apply: [configMap('c')] }))).toEqual([
      ['apply ConfigMap c'],
    ])
  })

  it('does not repeat what the server normalises, until the object moves', () => {
    const outcome = { apply: [configMap('c', { k: null })] }
    const [[write]] = planned(world(widget()), outcome).stages as [[Write & { verb: 'apply' }]]
    const normalised = taken(write, { data: { k: '' } })
    expect(inShort(planned(world(widget(), normalised), outcome))).toEqual([['apply ConfigMap c']])
    const noOps = { 'uid-taken': `201 ${write.fingerprint}` }
    expect(planned(world(widget(), normalised), outcome, noOps).stages).toEqual([])
    const changed = taken(write, { data: { k: 'x' }, metadata: { ...normalised.metadata, resourceVersion: '202' } })
    expect(inShort(planned(world(widget(), changed), outcome, noOps))).toEqual([['apply ConfigMap c']])
  })

  it('Recreate: deletes what was declared otherwise, and creates it when it is gone', () => {
    const job = (image: string) => ({ apiVersion: 'batch/v1', kind: 'Job', metadata: { name: 'j' }, spec: { image } })
    const [[created]] = planned(world(widget()), { apply: [job('a')] }).stages as [[Write]]
    expect(created.verb).toBe('create')
    const there = taken(created)
    expect(planned(world(widget(), there), { apply: [job('a')] }).stages).toEqual([])
    expect(inShort(planned(world(widget(), there), { apply: [job('b')] }))).toEqual([['delete Job j']])
    const going = taken(created, { metadata: { ...there.metadata, deletionTimestamp: 'now' } })
    expect(planned(world(widget(), going), { apply: [job('b')] }).stages).toEqual([])
    const unmarked = child('Job', 'j', { apiVersion: 'batch/v1' })
    expect(planned(world(widget(), unmarked), { apply: [job('b')] }).stages).toEqual([])
  })

  it('Recreate: keeps an object whose fields are declared in another order', () => {
    const job = (spec: object) => ({ apiVersion: 'batch/v1', kind: 'Job', metadata: { name: 'j' }, spec })
    const one = job({ a: { x: 1, y: [{ p: 1, q: 2 }] }, b: 2 })
    const same = job({ b: 2, a: { y: [{ q: 2, p: 1 }], x: 1 } })
    const other = job({ b: 2, a: { y: [{ q: 1, p: 2 }], x: 1 } })
    const [[created]] = planned(world(widget()), { apply: [one] }).stages as [[Write]]
    expect(planned(world(widget(), taken(created)), { apply: [same] }).stages).toEqual([])
    expect(inShort(planned(world(widget(), taken(created)), { apply: [other] }))).toEqual([['delete Job j']])
  })

  it('Recreate: keeps what an earlier version has created', () => {
    const job = { apiVersion: 'batch/v1', kind: 'Job', metadata: { name: 'j' }, spec: { z: 1, a: 2 } }
    const [[created]] = planned(world(widget()), { apply: [job] }).stages as [[Write]]
    const metadata = { ...taken(created).metadata, annotations: { [DESIRED_ANNOTATION]: 'iDzOeUgPaAgtwaML' } }
    expect(planned(world(widget(), taken(created, { metadata })), { apply: [job] }).stages).toEqual([])
  })

  it('namespaces, then service accounts and secrets, then what binds and serves, then pods', () => {
    const kinds = ['Pod', 'RoleBinding', 'Secret', 'Namespace', 'ServiceAccount', 'Service']
    const all = kinds.map((kind): OwnedResource => ({ ...CONFIG_MAPS, resource: kind.toLowerCase(), kind }))
    const apply = kinds.map((kind) => ({ apiVersion: 'v1', kind, metadata: { name: 'x' } }))
    const { stages } = plan({ for: WIDGETS, owns: all }, world(widget()), parseOutcome({ apply }), {
      identity: 'widget',
      now,
      noOps: {},
      isConfidential: () => false,
    })
    expect(stages.map((stage) => stage.map(({ object }) => object.kind))).toEqual([
      ['Namespace'],
      ['Secret', 'ServiceAccount'],
      ['RoleBinding', 'Service'],
      ['Pod'],
    ])
  })

  it('never shows a fingerprint of a Secret', () => {
    const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' }, stringData: { password: 'x' } }
    const [[write]] = planned(world(widget()), { apply: [secret] }).stages as [[Write]]
    expect(write.object.metadata.annotations?.[DESIRED_ANNOTATION]).toBeUndefined()
  })

  it.each([
    [
      'a kind that is not declared',
      { apiVersion: 'v1', kind: 'Service', metadata: { name: 's' } },
      'Service default/s',
    ],
    ['a version that is not declared', { apiVersion: 'v2', kind: 'Pod', metadata: { name: 'p' } }, 'v2 Pod'],
    ['another namespace', { ...pod(), metadata: { name: 'a', namespace: 'kube-system' } }, 'Pod kube-system/a'],
    [
      'another controller',
      { ...pod(), metadata: { name: 'a', ownerReferences: [ownedByWidget('other')] } },
      'Pod default/a',
    ],
  ])('refuses %s, by name', (_, object, named) => {
    expect(planned(world(widget()), { apply: [object] }).findings).toEqual([expect.stringContaining(named)])
  })

  it('refuses one name twice, and tells the places, of which a copy of the observed object is one', () => {
    const findings = (apply: object[]) => planned(world(widget()), { apply }).findings
    expect(findings([pod('b'), pod('a'), pod('a')])).toEqual([
      'Pod default/a is returned twice, as apply.1 and apply.2: return it once',
    ])
    expect(findings([{ ...pod('a'), metadata: { name: 'a', uid: 'uid-a' } }, pod('a')])).toEqual([
      'Pod default/a is returned twice, as apply.0 (a copy of the observed one) and apply.1: return it once',
    ])
  })

  it('runs again at the earlier of two times', () => {
    const at = '2030-01-01T00:00:10Z'
    const requeue = (outcome: object) => planned(world(widget()), outcome).requeue
    expect(requeue({})).toBeUndefined()
    expect(requeue({ requeueAfterSeconds: 5 })).toEqual({ afterMs: 5000 })
    expect(requeue({ requeueAfterSeconds: 5, requeueAt: at })).toEqual({ afterMs: 5000 })
    expect(requeue({ requeueAfterSeconds: 50, requeueAt: at })).toEqual(new Date(at))
    expect(requeue({ requeueAt: '2030-01-01T05:30:10+05:30' })).toEqual(new Date(at))
  })

  it('asks for no timer that overflows: after a hundred years it is decided again', () => {
    const { requeue } = planned(world(widget()), { requeueAt: '9999-12-31T23:59:59Z' })
    expect((requeue as Date).getUTCFullYear()).toBe(now.getUTCFullYear() + 100)
  })
})

describe('objects with a place in an order', () => {
  const staged = (name: string, number: number, action?: 'Hold' | 'Done' | 'Remove') => ({
    ...configMap(name),
    stage: { number, ...(action && { action }) },
  })
  const other = (name: string) => child('ConfigMap', name, { data: { k: 'other' } })

  it.each([
    [
      'only the first place that has a write is written, with what has no place',
      world(widget(), other('b')),
      [staged('c', 2), staged('b', 1.5), staged('a', 2), configMap('d')],
      [['apply ConfigMap b', 'apply ConfigMap d']],
    ],
    [
      'deletions wait while a write with a place is necessary',
      world(widget(), child('ConfigMap', 'old')),
      [staged('a', 1)],
      [['apply ConfigMap a']],
    ],
    [
      'Hold: what exists stays as it is, and what is missing is not created',
      world(widget(), other('a')),
      [staged('a', 1, 'Hold'), staged('b', 1, 'Hold')],
      [],
    ],
    [
      'Remove: it is deleted, as what is not returned is',
      world(widget(), other('a'), other('b')),
      [staged('a', 1, 'Remove')],
      [['delete ConfigMap a', 'delete ConfigMap b']],
    ],
    ['Remove: what does not exist needs no write', world(widget()), [staged('a', 1, 'Remove')], []],
  ])('%s', (_, observed, apply, expected) => expect(inShort(planned(observed, { apply }))).toEqual(expected))

  it('what is removed in an order stays until its pods are gone, and what is not returned does not', () => {
    const { stages } = planned(world(widget(), other('a'), other('b')), { apply: [staged('a', 1, 'Remove')] })
    expect(stages.flat()).toMatchObject([{ isForeground: true }, { isForeground: false }])
  })

  it('what others finalize keeps its dependents until they have finalized it, in an order too', () => {
    const a = other('a')
    a.metadata.finalizers = ['db.example.com/last-backup']
    const { stages } = planned(world(widget(), a), { apply: [staged('a', 1, 'Remove')] })
    expect(stages.flat()).toMatchObject([{ verb: 'delete', isForeground: false }])
  })

  it('the place is no part of the object', () => {
    const [[write]] = planned(world(widget()), { apply: [staged('a', 1)] }).stages as [[Write]]
    const [[plain]] = planned(world(widget()), { apply: [configMap('a')] }).stages as [[Write]]
    expect(write.object).toEqual(plain.object)
  })

  it('a refused write of an earlier place holds back the later ones', () => {
    const wanted = planned(world(widget()), { apply: [staged('a', 1), staged('b', 2)] })
    const [[write]] = wanted.stages as [[Write]]
    const refused = refusedWrite(write, new RefusedError('no', { reason: 'Forbidden' }))
    expect(inShort(withoutRefused(wanted, [refused])).flat()).not.toContain('apply ConfigMap b')
  })

  it.each([
    [{ number: 'first' }, /apply\.0\.stage\.number/],
    [{ number: 1, action: 'Wait' }, /apply\.0\.stage\.action/],
  ])('%j is refused with its path', (stage, message) => {
    expect(() => parseOutcome({ apply: [{ ...configMap('a'), stage }] })).toThrow(message)
  })
})

describe('what a function returns', () => {
  it.each([
    ['a string', 'done', /outcome/],
    ['an unknown field', { applly: [] }, /applly/],
    ['an object without a kind', { apply: [{ apiVersion: 'v1' }] }, /apply\.0\.kind/],
    [
      'a reason that is a sentence',
      { conditions: [{ type: 'Ready', status: 'True', reason: 'all is well' }] },
      /conditions\.0\.reason/,
    ],
    ['a time that is none', { requeueAt: 'tomorrow' }, /requeueAt/],
    ['a negative delay', { requeueAfterSeconds: -1 }, /requeueAfterSeconds/],
    ['a big integer', { status: { n: 1n } }, /not plain JSON/],
  ])('is refused with the path: %s', (_, returned, message) => {
    expect(() => parseOutcome(returned as never)).toThrow(message)
  })
})
