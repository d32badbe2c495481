import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { isOwnedBy, ownerOf, RETAINED_FOR, retainedFor, retainerOf } from '#spec'
import { child, ownedByWidget, widget } from '../dispatch/objects.ts'

const retained = (text: string, ownerReferences: object[] = []): KubeObject =>
  child('ConfigMap', 'c', { metadata: { annotations: { [RETAINED_FOR]: text }, ownerReferences } })
const ofWidget = { group: 'test.fairlead.dev', kind: 'Widget', name: 'w', uid: 'uid-w' }
const widgetInShort = 'Widget.test.fairlead.dev/w/uid-w'

it('the annotation names group, kind, name and uid of the owner', () => {
  expect(retainedFor(widget())).toBe(widgetInShort)
  const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'a', uid: 'uid-a' } }
  expect(retainedFor(namespace)).toBe('Namespace/a/uid-a')
})

it.each<[string, KubeObject, object | undefined]>([
  ['its controller', child('Pod', 'p'), ofWidget],
  ['nothing without a controller', retained('', []), undefined],
  ['what it is retained for', retained(widgetInShort), ofWidget],
  [
    'what it is retained for, of the core group',
    retained('Node/n/u'),
    { group: '', kind: 'Node', name: 'n', uid: 'u' },
  ],
  ['its controller, whatever the annotation says', retained('Node/n/u', [ownedByWidget()]), ofWidget],
  [
    'what it is retained for, beside owners that do not control it',
    retained(widgetInShort, [{ ...ownedByWidget('uid-other'), controller: false }]),
    ofWidget,
  ],
  ['nothing, with a name alone', retained('Widget/w'), undefined],
  ['nothing, without a uid', retained('Widget/w/'), undefined],
  ['nothing, without a kind', retained('.example.com/w/u'), undefined],
])('an object belongs to %s', (_, object, owner) => {
  expect(ownerOf(object)).toEqual(owner)
})

it('an owner is one object, not all of its name', () => {
  for (const object of [child('Pod', 'p'), retained(widgetInShort)]) {
    expect(isOwnedBy(object, widget())).toBe(true)
    expect(isOwnedBy(object, widget({ metadata: { uid: 'uid-later' } }))).toBe(false)
    expect(isOwnedBy(object, { ...widget(), metadata: { name: 'w' } })).toBe(false)
  }
  expect([retainerOf(child('Pod', 'p')), retainerOf(retained(widgetInShort))]).toEqual([undefined, ofWidget])
})
