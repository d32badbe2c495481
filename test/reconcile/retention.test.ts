import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { ownershipMark, RECONCILER_ANNOTATION, type Write } from '#reconcile'
import { RETAINED_FOR, retainedFor } from '#spec'
import { DESIRED_ANNOTATION } from '../../reconcile/desired.ts'
import { parseOutcome } from '../../reconcile/outcome.ts'
import { ONLY_IF_ABSENT, plan } from '../../reconcile/plan.ts'
import {
  CONFIG_MAPS,
  child,
  createdFor,
  JOBS,
  ownedByWidget,
  PODS,
  WIDGETS,
  widget,
  world,
} from '../dispatch/objects.ts'

const GOING = widget({ metadata: { deletionTimestamp: 'now' } })

const planned = (observed: ReturnType<typeof world>, outcome: object) =>
  plan({ for: WIDGETS, owns: [PODS, CONFIG_MAPS, JOBS], writes: ['Deletion'] }, observed, parseOutcome(outcome), {
    identity: 'widget',
    now: new Date('2030-01-01T00:00:00Z'),
    noOps: {},
    isConfidential: () => false,
  })
const writesOf = (observed: ReturnType<typeof world>, outcome: object): Write[] => {
  const { stages, findings } = planned(observed, outcome)
  expect(findings).toEqual([])
  return stages.flat()
}

const archive = (more: object = { retain: true }) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name: 'c' },
  data: { k: 'v' },
  ...more,
})
const owned = (kind = 'ConfigMap') => createdFor(widget(), 'widget', child(kind, 'c'))
function retained(kind = 'ConfigMap'): KubeObject {
  const object = owned(kind)
  const annotations = { ...object.metadata.annotations, [RETAINED_FOR]: retainedFor(widget()) }
  return { ...object, metadata: { ...object.metadata, annotations, ownerReferences: [] } }
}
/** What the API server has after the write. */
const taken = ({ object }: Write): KubeObject => ({
  ...object,
  metadata: { ...object.metadata, uid: 'uid-c', resourceVersion: '201' },
})

describe('an object that is to be retained', () => {
  it.each(['ConfigMap', 'Pod'])('is created with an annotation in place of the owner reference: a %s', (kind) => {
    const [write] = writesOf(world(widget()), { apply: [archive({ kind, retain: true })] })
    expect(write?.object).not.toHaveProperty('retain')
    expect(write?.object.metadata).not.toHaveProperty('ownerReferences')
    expect(write?.object.metadata.annotations).toMatchObject({
      [RETAINED_FOR]: 'Widget.test.fairlead.dev/w/uid-w',
      [RECONCILER_ANNOTATION]: ownershipMark('widget', widget(), child(kind, 'c')),
    })
  })

  it('keeps owners that the function gives it, but never the object itself', () => {
    const other = { ...ownedByWidget('uid-other'), controller: false }
    const metadata = { name: 'c', ownerReferences: [ownedByWidget(), other] }
    const [write] = writesOf(world(widget()), { apply: [archive({ metadata, retain: true })] })
    expect(write?.object.metadata.ownerReferences).toEqual([other])
  })

  it('is written no more when it is as it should be, also when it is returned as it was observed', () => {
    const [write] = writesOf(world(widget()), { apply: [archive()] })
    expect(write?.object.metadata.resourceVersion).toBe(ONLY_IF_ABSENT)
    const there = taken(write!)
    expect(writesOf(world(widget(), there), { apply: [archive()] })).toEqual([])
    expect(there.metadata.annotations?.[RETAINED_FOR]).toBe(retainedFor(widget()))
    expect(writesOf(world(widget(), there), { apply: [there] })).toEqual([])
  })

  it('is not retained because it was copied from one that is, for another object', () => {
    const copied = archive({ metadata: { name: 'c', annotations: { [RETAINED_FOR]: 'Widget.test.fairlead.dev/x/u' } } })
    const [write] = writesOf(world(widget()), { apply: [copied] })
    expect(write?.object.metadata.ownerReferences).toEqual([ownedByWidget()])
    expect(write?.object.metadata.annotations).not.toHaveProperty(RETAINED_FOR)
  })

  it('is deleted when the function no longer returns it', () => {
    expect(writesOf(world(widget(), retained()), { apply: [] })).toMatchObject([{ verb: 'delete' }])
    expect(writesOf(world(widget(), retained()), {})).toEqual([])
  })

  it.each<[string, KubeObject, object]>([
    ['while its owner is being deleted', GOING, { apply: [] }],
    ['where the function deletes its owner', widget(), { apply: [], deleteObject: true }],
  ])('stays %s', (_, object, outcome) => {
    const other = createdFor(widget(), 'widget', child('ConfigMap', 'd'))
    expect(writesOf(world(object, retained(), other), outcome)).toMatchObject([
      { verb: 'delete', object: { metadata: { name: 'd' } } },
    ])
  })

  it('is refused under a strategy that deletes it to change it', () => {
    const job = archive({ apiVersion: 'batch/v1', kind: 'Job', retain: true })
    expect(planned(world(widget()), { apply: [job] }).findings).toEqual([
      'Job default/c is to be retained, but strategy Recreate deletes an object to change it: own Job with another strategy',
    ])
  })

  it.each(['yes', 1, null])('is refused with retain: %j', (retain) => {
    expect(() => parseOutcome({ apply: [archive({ retain })] })).toThrow('apply.0.retain')
  })
})

describe('an object that is owned', () => {
  const reference = { ...ownedByWidget('uid-other'), controller: false }

  it('begins to be retained in one write that takes the reference away, whoever has written that', () => {
    const { metadata, ...content } = owned()
    const there = { ...content, metadata: { ...metadata, ownerReferences: [reference, ownedByWidget()] } }
    expect(writesOf(world(widget(), there), { apply: [archive()] })).toEqual([
      {
        verb: 'patch',
        resource: CONFIG_MAPS,
        object: there,
        patch: {
          metadata: {
            resourceVersion: '200',
            ownerReferences: [reference],
            annotations: {
              [RETAINED_FOR]: retainedFor(widget()),
              [RECONCILER_ANNOTATION]: ownershipMark('widget', widget(), there),
            },
          },
        },
      },
    ])
  })

  it('ceases to be retained in one write too', () => {
    const { metadata, ...content } = retained()
    const there = { ...content, metadata: { ...metadata, ownerReferences: [reference] } }
    expect(writesOf(world(widget(), there), { apply: [archive({})] })).toMatchObject([
      {
        verb: 'patch',
        patch: {
          metadata: {
            resourceVersion: '200',
            ownerReferences: [reference, ownedByWidget()],
            annotations: { [RETAINED_FOR]: null },
          },
        },
      },
    ])
  })

  it('is left alone while it is being deleted', () => {
    const { metadata, ...content } = owned()
    const there = { ...content, metadata: { ...metadata, deletionTimestamp: 'now' } }
    expect(writesOf(world(widget(), there), { apply: [archive()] })).toEqual([])
  })

  it('cannot begin to be retained where its strategy does not change it', () => {
    const pod = archive({ kind: 'Pod', retain: true })
    expect(planned(world(widget(), owned('Pod')), { apply: [pod] }).findings).toEqual([
      'Pod default/c is to be retained, but it has an owner reference, and strategy CreateOnly does not change it: own Pod with strategy Apply',
    ])
    expect(writesOf(world(widget(), retained('Pod')), { apply: [pod] })).toEqual([])
    expect(writesOf(world(widget(), retained('Pod')), { apply: [archive({ kind: 'Pod' })] })).toEqual([])
    expect(writesOf(world(GOING, retained('Pod')), { apply: [archive({ kind: 'Pod' })] })).toEqual([])
  })

  it('does not get a reference to an owner that is being deleted: garbage collection would delete it', () => {
    const { findings } = planned(world(GOING, retained()), { apply: [archive({})] })
    expect(findings).toEqual([
      'ConfigMap default/c is retained, but the function returns it without "retain" while its owner is being deleted: return it with "retain", or not at all',
    ])
    expect(writesOf(world(GOING, owned()), { apply: [archive()] })).toMatchObject([{ verb: 'patch' }])
  })

  it('has the fingerprint that earlier versions wrote: an upgrade writes nothing', () => {
    const [write] = writesOf(world(widget()), { apply: [archive({})] })
    expect(write?.object.metadata.annotations?.[DESIRED_ANNOTATION]).toBe('UyZzFiwJgpIVk8Ao')
  })
})
