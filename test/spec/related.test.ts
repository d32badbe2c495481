import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { namesAt, parseFieldSelector, type RelatedResource, relatedLookup, relation, selectionOf } from '#spec'

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
    expect(namesAt(primary, path)).toEqual(expected)
  })
})

describe('an object is related', () => {
  const primary = named('p', {}, { spec: { config: 'one' } })
  it.each<[string, RelatedResource, KubeObject, boolean]>([
    ['of any name in the same namespace', related(), named('x'), true],
    ['without a namespace', related(), named('x', { namespace: undefined as never }), true],
    ['not from another namespace', related(), named('x', { namespace: 'other' }), false],
    ['from anywhere when so declared', related({ within: 'Cluster' }), named('x', { namespace: 'other' }), true],
    ['by name', related({ byName: 'spec.config' }), named('one'), true],
    ['not by another name', related({ byName: 'spec.config' }), named('two'), false],
    ['by its labels', related({ selector: 'a=b' }), named('x', { labels: { a: 'b' } }), true],
    ['not by other labels', related({ selector: 'a=b' }), named('x'), false],
    ['by a field', related({ fieldSelector: 'status.phase!=Done' }), named('x', {}, { status: {} }), true],
  ])('%s', (_name, declared, object, expected) => {
    expect(relation(declared)(primary)(object)).toBe(expected)
  })

  it('where a reader has to look', () => {
    expect(relatedLookup(related({ byName: 'spec.config' }), primary)).toEqual({ namespace: 'default', names: ['one'] })
    expect(relatedLookup(related({ within: 'Cluster' }), primary)).toEqual({ namespace: undefined, names: undefined })
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
    expect(() => selectionOf({ fieldSelector: 'spec.nodeName' })).toThrow('no field requirement')
  })
})
