import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import type { EventStore, Identity } from '#events'
import type { KubeClient } from '#kube'
import {
  difference,
  KnownObjects,
  known,
  overriddenBy,
  type RelistPlan,
  relist,
  type StoredState,
} from '../../bridge/relist.ts'
import { Routes } from '../../bridge/routing.ts'
import { configMaps, object, reconciler } from './objects.ts'

const listed = object('ConfigMap', 'c', { uid: 'u1', resourceVersion: '50' })
const had = (more: Partial<StoredState> = {}): StoredState => ({
  uid: 'u1',
  resourceVersion: '50',
  deleted: false,
  owner: undefined,
  covered: true,
  partial: false,
  sequence: 9,
  hasStaleCopy: false,
  ...more,
})
const owner = { resource: 'widgets', name: 'w' }

describe('a listed object is', () => {
  it.each([
    ['added when EVENTS never had it', undefined, undefined, 'added'],
    ['added when EVENTS has its end', had({ deleted: true }), undefined, 'added'],
    ['the same in the same version', had(), undefined, 'same'],
    ['modified in another version', had({ resourceVersion: '49' }), undefined, 'modified'],
    ['replaced when it is another one of that name', had({ uid: 'u0' }), undefined, 'replaced'],
    ['modified when it has to move to its owner', had(), owner, 'modified'],
    ['the same below its owner', had({ owner }), owner, 'same'],
    ['the same when somebody else knows its owner', had({ owner }), undefined, 'same'],
  ] as const)('%s', (_name, before, wanted, expected) => {
    expect(difference(before, listed, wanted)).toBe(expected)
  })
})

it('a deletion is overridden by a listed object that is the very one, as it was then', () => {
  expect(overriddenBy(had({ deleted: true }), listed)).toBe(9)
  for (const other of [{ deleted: false }, { uid: 'u0' }, { resourceVersion: '49' }])
    expect(overriddenBy(had({ deleted: true, ...other }), listed)).toBeUndefined()
})

it('what EVENTS has is overridden by a listed object of a version before: the API server was restored from a backup', () => {
  for (const later of [{}, { deleted: true }, { uid: 'u2' }, { uid: 'u2', deleted: true }])
    expect(overriddenBy(had({ resourceVersion: '51', ...later }), listed)).toBe(9)
  expect(difference(had({ resourceVersion: '51' }), listed, undefined)).toBe('modified')
  expect(difference(had({ resourceVersion: '51', uid: 'u2' }), listed, undefined)).toBe('added')
})

describe('the keys of a version are known to be enqueued', () => {
  const identity = (resourceVersion: string, sequence: number): Identity => ({
    key: { ref: configMaps, namespace: 'default', name: 'c' },
    object: listed,
    uid: 'u1',
    resourceVersion,
    sequence,
    storedAt: 0,
    deleted: false,
    owner: undefined,
    origin: undefined,
    traceparent: undefined,
    referenceOnly: false,
  })
  const cursor = { resourceVersion: '100', sequence: 10 }

  it.each([
    ['when a cursor covers it in both orders', identity('99', 9), cursor, true],
    ['at the cursor itself', identity('100', 9), cursor, true],
    ['never without a cursor', identity('99', 9), undefined, false],
    ['not when it is newer', identity('101', 9), cursor, false],
    ['not when it is longer, so newer', identity('1000', 9), cursor, false],
    ['not when it was stored later: a deletion that a list found', identity('7', 11), cursor, false],
    ['not when versions do not compare', identity('x', 9), cursor, false],
  ] as const)('%s', (_name, version, upTo, expected) => {
    expect(known(version, upTo).covered).toBe(expected)
  })
})

const copy = (resourceVersion: string, more: Partial<StoredState> = {}) =>
  had({ resourceVersion, owner, sequence: Number(resourceVersion), ...more })
const other = { owner: { ...owner, name: 'b' } }

it.each<[string, StoredState, StoredState, boolean]>([
  ['an older copy under another owner', copy('7'), copy('5', other), true],
  ['an older copy under no owner', copy('7'), copy('5', { owner: undefined }), true],
  ['a present copy under another owner beside a deletion', copy('7', { deleted: true }), copy('5', other), true],
  ['an older deletion under another owner', copy('7'), copy('5', { ...other, deleted: true }), false],
  ['an older copy under the same owner', copy('7'), copy('5'), false],
])('the latest copy counts, and %s is noted, in any order', (_, latest, older, hasStaleCopy) => {
  for (const copies of [
    [latest, older],
    [older, latest],
  ]) {
    const objects = new KnownObjects()
    for (const known of copies) objects.add('default.c', known)
    expect(objects.take('default.c')).toEqual({ ...latest, hasStaleCopy })
  }
})

/** Counts how often it is asked. */
class Asked extends Set<string> {
  times = 0
  override has(id: string): boolean {
    this.times++
    return super.has(id)
  }
}

it('a list asks once which Reconcilers have to run every key, however many objects have not changed', async () => {
  const routes = new Routes(['one', 'two'].map((name) => reconciler(name, { for: configMaps })))
  const covers = new Asked(routes.coverageIdsOf(configMaps))
  const objects = ['a', 'b', 'c'].map((name) => object('ConfigMap', name, { uid: name, resourceVersion: '5' }))
  const plan: RelistPlan = {
    ref: configMaps,
    namespace: undefined,
    routes,
    selection: {},
    coveredUpTo: { resourceVersion: '9', sequence: 9 },
    covers,
    unsafeBelow: 0,
    stream: true,
    signal: new AbortController().signal,
  }
  const published: string[] = []
  const publish = async ({ key }: { key: string }) => void published.push(key)
  const report = await relist(plan, { kube: listOf(objects), events: eventsWith(objects), publish })
  expect({ ...report, published, asked: covers.times }).toEqual({
    objects: 3,
    changed: 0,
    deleted: 0,
    resourceVersion: '9',
    published: [],
    asked: 2,
  })
})

const END = { name: '', resourceVersion: '9', annotations: { 'k8s.io/initial-events-end': 'true' } }

function listOf(objects: readonly KubeObject[]): KubeClient {
  async function* watch() {
    for (const one of objects) yield { type: 'ADDED', object: one }
    yield { type: 'BOOKMARK', object: { metadata: END } }
  }
  return { watch } as unknown as KubeClient
}

function eventsWith(objects: readonly KubeObject[]): EventStore {
  async function* identities() {
    for (const { metadata } of objects) {
      const { namespace, name, uid, resourceVersion } = metadata
      yield {
        key: { ref: configMaps, namespace, name },
        object: object('ConfigMap', name),
        uid,
        resourceVersion,
        sequence: 1,
      }
    }
  }
  return { identities } as unknown as EventStore
}
