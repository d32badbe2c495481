import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import {
  namesOf,
  namesOthers,
  parseFieldSelector,
  type RelatedResource,
  relatedLookup,
  relation,
  selectionOf,
} from '#spec'

const configMaps = { group: '', version: 'v1', resource: 'configmaps', kind: 'ConfigMap' }
const related = (more: Partial<RelatedResource> = {}): RelatedResource => ({
  ...configMaps,
  within: 'Namespace',
  ...more,
})
const named = (name: string, metadata: Partial<KubeObject['metadata']> = {}, more: object = {}): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Any',
  metadata: { name, namespace: 'default', ...metadata },
  ...more,
})

const ownedBy = (uid: string) => ({ ownerReferences: [{ apiVersion: 'v1', kind: 'Any', name: 'p', uid }] })

describe('the names that a path gives', () => {
  const primary = named(
    'p',
    { annotations: { 'example.com/config': 'noted' } },
    { spec: { config: 'one', volumes: [{ configMap: { name: 'a' } }, {}, { configMap: { name: 'b' } }], count: 3 } },
  )

  it.each<[string, string, string[]]>([
    ['of a field', 'spec.config', ['one']],
    ['of each in a list', 'spec.volumes[*].configMap.name', ['a', 'b']],
    ['of an annotation', "metadata.annotations['example.com/config']", ['noted']],
    ['are none where a step is missing', 'spec.nothing.name', []],
    ['are none where there is a number', 'spec.count', []],
    ['are none of what every JavaScript object has', 'spec.constructor.name', []],
  ])('%s', (_name, path, expected) => {
    expect(namesOf(related({ byName: path }), primary, path)).toEqual(expected)
  })
})

describe('an object is related', () => {
  const primary = named(
    'p',
    { uid: 'uid-p' },
    { spec: { config: 'one', each: ['a', 'b', '../c', 'D', ''] }, status: { namespace: 'there' } },
  )
  const inNamed = related({ namespacePath: 'status.namespace' })
  const inEach = related({ namespacePath: 'spec.each[*]' })
  it.each<[string, RelatedResource, KubeObject, boolean]>([
    ['of any name in the same namespace', related(), named('x'), true],
    ['without a namespace', related(), named('x', { namespace: undefined as never }), true],
    ['not from another namespace', related(), named('x', { namespace: 'other' }), false],
    ['from anywhere when so declared', related({ within: 'Cluster' }), named('x', { namespace: 'other' }), true],
    ['by name', related({ byName: 'spec.config' }), named('one'), true],
    ['not by another name', related({ byName: 'spec.config' }), named('two'), false],
    ['by its labels', related({ selector: 'a=b' }), named('x', { labels: { a: 'b' } }), true],
    ['not by other labels', related({ selector: 'a=b' }), named('x'), false],
    ['in a namespace that a field names', inNamed, named('x', { namespace: 'there' }), true],
    ['in each namespace that a list names', inEach, named('x', { namespace: 'b' }), true],
    ['not in its own namespace when a field names another one', inNamed, named('x'), false],
    ['not without a namespace when a field names one', inNamed, named('x', { namespace: undefined as never }), false],
    ['to nobody where the field is missing', related({ namespacePath: 'status.none' }), named('x'), false],
    ['by labels, in that namespace', { ...inNamed, selector: 'a=b' }, named('x', { namespace: 'there' }), false],
    ['by name, in that namespace', { ...inNamed, byName: 'spec.config' }, named('one', { namespace: 'there' }), true],
    ['not by name elsewhere', { ...inNamed, byName: 'spec.config' }, named('one'), false],
    ['by an owner reference', related({ byOwner: true }), named('x', ownedBy('uid-p')), true],
    ['not by that of an earlier owner of the name', related({ byOwner: true }), named('x', ownedBy('uid-old')), false],
    [
      'by an owner reference, and labels',
      related({ byOwner: true, selector: 'a=b' }),
      named('x', ownedBy('uid-p')),
      false,
    ],
    ['by its own field', related({ naming: 'spec.nodeName' }), named('x', {}, { spec: { nodeName: 'p' } }), true],
    [
      'by each in its list',
      related({ naming: 'spec.of[*].name' }),
      named('x', {}, { spec: { of: [{}, { name: 'p' }] } }),
      true,
    ],
    [
      'not by the name of another',
      related({ naming: 'spec.nodeName' }),
      named('x', {}, { spec: { nodeName: 'q' } }),
      false,
    ],
    ['not where its field is missing', related({ naming: 'spec.nodeName' }), named('x'), false],
    [
      'not by its field in another namespace',
      related({ naming: 'spec.nodeName' }),
      named('x', { namespace: 'other' }, { spec: { nodeName: 'p' } }),
      false,
    ],
    [
      'by a field of both',
      related({ naming: 'spec.of[*].name', byName: 'spec.config' }),
      named('x', {}, { spec: { of: [{ name: 'one' }] } }),
      true,
    ],
    [
      'not by a field of both, if it has the name of the primary',
      related({ naming: 'spec.nodeName', byName: 'spec.config' }),
      named('one', {}, { spec: { nodeName: 'p' } }),
      false,
    ],
    ['by a field', related({ fieldSelector: 'status.phase!=Done' }), named('x', {}, { status: {} }), true],
  ])('%s', (_name, declared, object, expected) => {
    expect(relation(declared)(primary)(object)).toBe(expected)
  })

  it('where a reader has to look', () => {
    const lookup = (more: Partial<RelatedResource>) => relatedLookup(related(more), primary)
    const near = { namespaces: ['default'], clusterScoped: true }
    expect(lookup({ byName: 'spec.config' })).toEqual({ ...near, names: ['one'] })
    expect(lookup({ within: 'Cluster' })).toEqual({ ...near, namespaces: undefined, names: undefined })
    expect(relatedLookup(inNamed, primary)).toEqual({ namespaces: ['there'], clusterScoped: false, names: undefined })
    expect(relatedLookup(inEach, primary).namespaces).toEqual(['a', 'b'])
  })

  it('another one when a field names something else, and only then', () => {
    const changed = (more: object) => ({ ...primary, ...more })
    const all = [related({ byName: 'spec.config' }), inNamed, related({ selector: 'a=b' })]
    expect(namesOthers(all, primary, changed({ status: { namespace: 'there', phase: 'New' } }))).toBe(false)
    expect(namesOthers(all, primary, changed({ status: {} }))).toBe(true)
    expect(namesOthers(all, primary, changed({ spec: { config: 'two' } }))).toBe(true)
  })
})

describe('a field selector', () => {
  it.each<[string, boolean]>([
    ['', true],
    ['spec.nodeName=n1', true],
    ['spec.nodeName==n1,metadata.name!=other', true],
    ['spec.nodeName!=n1', false],
    ['spec.missing=', true],
    ['spec.on=true', true],
  ])('%s: %s', (text, expected) => {
    expect(parseFieldSelector(text)(named('p', {}, { spec: { nodeName: 'n1', on: true } }))).toBe(expected)
  })

  it('takes a field that is no single value for empty, however deep it is', () => {
    const deep = JSON.parse(`${'['.repeat(9000)}${']'.repeat(9000)}`) as unknown
    expect(parseFieldSelector('spec.a=x')(named('p', {}, { spec: { a: deep } }))).toBe(false)
  })

  it('that is none is refused', () => {
    expect(() => selectionOf({ fieldSelector: 'spec.nodeName' })).toThrow('not a field requirement')
  })
})
