import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { lostOf, missingIn, type Wanted, wrongOf } from './judge.ts'

const object = (kind: string, name: string, fields: object = {}, metadata: object = {}): KubeObject =>
  ({ kind, metadata: { name, namespace: 'default', ...metadata }, ...fields }) as KubeObject
const wantedChild = { kind: 'ConfigMap', metadata: { name: 'a' }, data: { x: '1' } } as unknown as KubeObject
const parent = object('Cats', 'cats', { status: { replicas: 1, observedGeneration: 2 } })
const child = object('ConfigMap', 'a', { data: { x: '1', more: 'of others' } })
const wanted: Wanted = { children: [wantedChild], status: { replicas: 1 } }

it('finds nothing where all that is wanted is there, beside what others have set', () => {
  expect(wrongOf(parent, wanted, [child])).toEqual([])
})

it.each<[wrong: string, wanted: Wanted, children: KubeObject[]]>([
  ['Cats default/cats has no ConfigMap a', wanted, []],
  [
    'Cats default/cats has no ConfigMap a',
    wanted,
    [object('ConfigMap', 'a', { data: { x: '1' } }, { deletionTimestamp: '2030-01-01T00:00:00Z' })],
  ],
  ['Cats default/cats has ConfigMap default/b, which is not wanted', wanted, [child, object('ConfigMap', 'b')]],
  [
    'ConfigMap default/a of Cats default/cats.data.x is "2" instead of "1"',
    wanted,
    [object('ConfigMap', 'a', { data: { x: '2' } })],
  ],
  ['Cats default/cats .status.replicas is 1 instead of 2', { ...wanted, status: { replicas: 2 } }, [child]],
])('says: %s', (wrong, what, children) => {
  expect(wrongOf(parent, what, children)).toEqual([wrong])
})

it('a child that may differ has to be there', () => {
  const kept = { ...wanted, children: [{ ...wantedChild, mayDiffer: true }] }
  expect(wrongOf(parent, kept, [object('ConfigMap', 'a', { data: {} })])).toEqual([])
  expect(wrongOf(parent, kept, [])).toHaveLength(1)
})

it('fields and items that the API server adds or leaves out are no difference', () => {
  expect(missingIn('x', { list: [{ a: 1, b: 2 }, { c: 3 }] }, { list: [{ a: 1 }], zero: 0, none: null })).toEqual([])
  expect(missingIn('x', { list: [{ a: 1 }] }, { list: [{ a: 1 }, { c: 3 }] })).toHaveLength(1)
  expect(missingIn('x', {}, { one: 1 })).toEqual(['x.one is undefined instead of 1'])
})

it('a child that is deleted is lost, unless its parent goes, its hook drops it, or an edit replaces it', () => {
  const ref = { group: '', version: 'v1', resource: 'configmaps' }
  const deleted = (owner: string | undefined) => ({ object: child, ref, owner })
  const licence = { isAlive: true, replacements: () => 1, isDropped: () => false }
  const lost = (...owners: (string | undefined)[]) =>
    lostOf(
      owners.map(deleted),
      (owner) =>
        ({
          living: licence,
          going: { ...licence, isAlive: false },
          dropping: { ...licence, isDropped: () => true },
        })[owner],
    )
  expect(lost('living', 'going', 'dropping', 'unknown', undefined)).toEqual([])
  expect(lost('living', 'living')).toEqual(['ConfigMap default/a was deleted 2 times, and may be 1 times'])
})
