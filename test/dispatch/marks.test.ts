import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import {
  fieldManagerOf,
  isCreatedBy,
  markedBy,
  ownershipMark,
  RECONCILER_ANNOTATION,
} from '../../reconcile/ownership.ts'
import { child, ownedByWidget, widget } from './objects.ts'

const owner = widget()
const pod = child('Pod', 'a')
const mark = ownershipMark('web', owner, pod)
const carrying = (value: string | undefined, object = pod): KubeObject => ({
  ...object,
  metadata: {
    ...object.metadata,
    ...(value !== undefined && { annotations: { [RECONCILER_ANNOTATION]: value } }),
  },
})

it.each([
  ['fits the object that it was written on', owner, carrying(mark), 'web'],
  ['fits in any version of the kind', owner, carrying(mark, { ...pod, apiVersion: 'v2' }), 'web'],
  ['is missing', owner, carrying(undefined), undefined],
  ['is empty', owner, carrying(''), undefined],
  ['is a bare name', owner, carrying('web'), undefined],
  ['has one part too many', owner, carrying(`${mark}/x`), undefined],
  ['names another reconciler than it was made for', owner, carrying(mark.replace('web', 'other')), undefined],
  ['was copied to another name', owner, carrying(mark, child('Pod', 'b')), undefined],
  [
    'was copied to another namespace',
    owner,
    carrying(mark, child('Pod', 'a', { metadata: { namespace: 'x' } })),
    undefined,
  ],
  ['was copied to another kind', owner, carrying(mark, child('Secret', 'a')), undefined],
  ['was copied to another group', owner, carrying(mark, { ...pod, apiVersion: 'example.com/v1' }), undefined],
  ['was copied below another owner', widget({ metadata: { uid: 'uid-other' } }), carrying(mark), undefined],
])('a mark that %s', (_, of, object, identity) => {
  expect(markedBy(of, object)).toBe(identity)
})

const field = (uid: string) => ({ 'f:metadata': { 'f:ownerReferences': { '.': {}, [`k:{"uid":"${uid}"}`]: {} } } })
const written = (manager: string, fieldsV1: unknown, value?: string): KubeObject => {
  const object = carrying(value)
  return { ...object, metadata: { ...object.metadata, managedFields: [{ manager, fieldsV1 }] } }
}
const { uid } = ownedByWidget()

it.each([
  ['the reconciler wrote its owner reference', written('fairlead-web', field(uid)), true],
  ['another manager wrote its owner reference', written('kube-controller-manager', field(uid)), false],
  ['another reconciler wrote its owner reference', written('fairlead-web-2', field(uid)), false],
  ['the reconciler wrote a reference to another owner', written('fairlead-web', field('uid-other')), false],
  [
    'the reconciler wrote its finalizers alone',
    written('fairlead-web', { 'f:metadata': { 'f:finalizers': {} } }),
    false,
  ],
  ['the managed fields were removed', carrying(undefined), false],
  ['the managed fields are of another form', written('fairlead-web', null), false],
  ['it has the mark of another reconciler', written('fairlead-web', field(uid), ownershipMark('b', owner, pod)), false],
  ['it has a copied mark of another reconciler', written('fairlead-web', field(uid), 'b/AAAAAAAAAAAAAAAA'), true],
  ['it has the mark', written('somebody', field(uid), mark), true],
])('an object counts as created by a reconciler: %s', (_, live, isCreated) => {
  expect(isCreatedBy('web', owner, live)).toBe(isCreated)
})

it('a field manager has 128 characters at most', () => {
  expect(fieldManagerOf('x'.repeat(253))).toHaveLength(128)
})
