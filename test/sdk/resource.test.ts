import { describe, expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { z as z3 } from 'zod/v3'
import type { KubeObject } from '#contracts'
import { kind, Pod, resource, type ValidationRule } from '#sdk'

const Shop = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Shop',
  plural: 'shops',
  shortNames: ['sh'],
  categories: ['all'],
  spec: z.object({
    size: z.int32().min(1),
    doors: z.array(z.object({ name: z.string() })).default([]),
    labels: z.record(z.string(), z.string()).optional(),
  }),
  status: z.object({ open: z.boolean(), nodes: z.array(z.string()) }),
  columns: [{ name: 'Size', path: '.spec.size', type: 'integer' }],
})

const shop = (rest: Partial<KubeObject>): KubeObject => ({
  apiVersion: 'example.com/v1',
  kind: 'Shop',
  metadata: { name: 'corner', namespace: 'default' },
  ...rest,
})

it('an object is made with a status too, for tests', () => {
  const metadata = { name: 'a' }
  const made = Shop.of({ metadata, spec: { size: 1 }, status: { open: true, observedGeneration: 3 } })
  expect(made).toEqual(shop({ metadata, spec: { size: 1 }, status: { open: true, observedGeneration: 3 } }))
  // @ts-expect-error The schema has no such field.
  Shop.of({ metadata, spec: { size: 1 }, status: { opened: true } })
  expect(Pod.of({ metadata, status: { phase: 'Running' } }).status?.phase).toBe('Running')
})

describe('reading an object', () => {
  it('gives its types, its defaults, and a status in which nothing is certain', () => {
    const { spec, status } = Shop.parse(shop({ spec: { size: 2 } }))
    expect(spec).toEqual({ size: 2, doors: [] })
    expect(status).toEqual({})
    expectTypeOf(spec.size).toEqualTypeOf<number>()
    expectTypeOf(status.open).toEqualTypeOf<boolean | undefined>()
    expectTypeOf(status.observedGeneration).toEqualTypeOf<number | undefined>()
  })

  it('keeps what it does not know outside of the spec', () => {
    const object = shop({ metadata: { name: 'a', strange: 1 }, spec: { size: 1 }, extra: true })
    expect(Shop.parse(object)).toMatchObject({ metadata: { name: 'a', strange: 1 }, extra: true })
  })

  it('reads the generation -1, which controllers store for an object that they have not seen', () => {
    const status = { open: true, observedGeneration: -1 }
    expect(Shop.parse(shop({ spec: { size: 2 }, status })).status).toEqual(status)
  })

  it.each<[string, Partial<KubeObject>, string]>([
    ['a wrong type', { spec: { size: 'three' } }, 'spec.size is "three": expected number, received string'],
    ['a missing field', { spec: {} }, 'spec.size is missing: expected number'],
    ['no spec at all', {}, 'spec.size is missing'],
    ['a spec that is none', { spec: 'x' }, 'spec is "x": expected object'],
    ['a limit', { spec: { size: 0 } }, 'spec.size is 0: Too small'],
    ['a place in a list', { spec: { size: 1, doors: [{ name: 'a' }, { name: null }] } }, 'spec.doors[1].name is null'],
    ['a key that is no word', { spec: { size: 1, labels: { 'a.b/c': 1 } } }, 'spec.labels["a.b/c"] is 1'],
    ['a status', { spec: { size: 1 }, status: { open: 'yes' } }, 'status.open is "yes": expected boolean'],
    [
      'several at once',
      { spec: { doors: 1 } },
      'spec.size is missing: expected number, received undefined; spec.doors is 1',
    ],
    ['a long value, cut', { spec: { size: 'x'.repeat(999) } }, `spec.size is "${'x'.repeat(119)}…: expected number`],
  ])('refuses for good, naming path and value: %s', (_, rest, message) => {
    const reading = () => Shop.parse(shop(rest))
    expect(reading).toThrow(message)
    expect(reading).toThrow(expect.objectContaining({ name: 'TerminalError', reason: 'InvalidObject' }))
  })
})

describe('a CustomResourceDefinition', () => {
  const [version] = Shop.crd().spec.versions
  const { openAPIV3Schema } = version!.schema

  it('has names, scope, columns with the age last, and a status subresource', () => {
    expect(Shop.crd()).toMatchObject({
      metadata: { name: 'shops.example.com' },
      spec: {
        scope: 'Namespaced',
        names: { kind: 'Shop', listKind: 'ShopList', plural: 'shops', singular: 'shop', shortNames: ['sh'] },
      },
    })
    expect(version!.subresources).toEqual({ status: {} })
    expect(version!.additionalPrinterColumns.map(({ name }) => name)).toEqual(['Size', 'Age'])
  })

  it('requires a spec if the spec requires something', () => {
    expect(openAPIV3Schema.required).toEqual(['spec'])
  })

  it('requires nothing of a status, so that conditions can be written first', () => {
    expect(openAPIV3Schema.properties!['status']).not.toHaveProperty('required')
    expect(Object.keys(openAPIV3Schema.properties!['status']!.properties!)).toEqual([
      'open',
      'nodes',
      'observedGeneration',
      'conditions',
    ])
  })

  it('leaves conditions to the platform', () => {
    const status = z.object({ conditions: z.array(z.string()) })
    expect(() =>
      resource({ group: 'a.b', version: 'v1', kind: 'X', plural: 'xs', spec: z.object({}), status }),
    ).toThrow('X: status.conditions is kept by the platform')
  })
})

describe('rules on the whole object', () => {
  const options = {
    group: 'example.com',
    version: 'v1',
    kind: 'Shop',
    plural: 'shops',
    spec: z.object({
      size: z.int32(),
      'a-b': z.string().optional(),
      labels: z.record(z.string(), z.string()).optional(),
    }),
    status: z.object({ open: z.boolean() }),
  }
  const schemaWith = (validations: ValidationRule[]) =>
    resource({ ...options, validations }).crd().spec.versions[0]!.schema.openAPIV3Schema
  const short = { rule: 'self.metadata.name.size() <= 40', message: 'give it a shorter name' }

  it('stand at the root of the schema', () => {
    expect(schemaWith([short])['x-kubernetes-validations']).toEqual([short])
    expect(Object.keys(schemaWith([short]).properties!)).toEqual(['spec', 'status'])
  })

  it('name fields for kubectl, the name of the object too', () => {
    const paths = ['.metadata.name', '.spec.size', ".spec['a-b']", '.spec.labels.tier', '.status.open', '.spec']
    const rules = paths.map((fieldPath) => ({ ...short, fieldPath }))
    expect(schemaWith(rules)['x-kubernetes-validations']).toEqual(rules)
    expect(schemaWith(rules).properties!['metadata']!.properties).toHaveProperty('name')
  })

  it('are those of each version that is served, unless it has its own', () => {
    const served = [
      { version: 'v2', spec: options.spec },
      { version: 'v3', spec: options.spec, validations: [short, { rule: 'true' }] },
    ]
    const { versions } = resource({ ...options, validations: [short], served }).crd().spec
    expect(versions.map(({ schema }) => schema.openAPIV3Schema['x-kubernetes-validations'])).toEqual([
      [short],
      [short],
      [short, { rule: 'true' }],
    ])
    const loose = [{ version: 'v2', spec: options.spec, validations: [] }]
    expect(() => resource({ ...options, validations: [short], served: loose }).crd()).toThrow(
      'in v1 the object would have to hold the rule self.metadata.name.size() <= 40',
    )
  })

  it.each<[object, string]>([
    [{ rule: 5 }, 'validations[0].rule is 5: expected string'],
    [{ ...short, fieldpath: '.spec' }, 'validations[0] has an unknown option "fieldpath": did you mean "fieldPath"?'],
    [{ ...short, fieldPath: '.spec.sise' }, 'validations[0].fieldPath is ".spec.sise": the schema has no such field'],
    [{ ...short, fieldPath: '.metadata.labels' }, 'fieldPath is ".metadata.labels": the schema has no such field'],
    [
      { rule: "self.metadata.labels['a'] == 'self.metadata.x'" },
      'validations[0].rule reads self.metadata.labels, but of metadata Kubernetes gives a rule name and generateName alone',
    ],
  ])('are refused with %j, in one line', (rule, message) => {
    const make = () => schemaWith([rule as ValidationRule])
    expect(make).toThrow(message)
    expect(make).toThrow(/^.*$/)
  })
})

describe('a resource that is wrong', () => {
  const whole = {
    group: 'example.com',
    version: 'v1',
    kind: 'Shop',
    plural: 'shops',
    spec: z.object({}),
    status: z.object({}),
  }
  it.each([
    [{ shortnames: ['sh'] }, 'resource Shop has an unknown option "shortnames": did you mean "shortNames"?'],
    [{ plural: undefined }, 'resource Shop has no "plural": give it a text'],
    [{ spec: { size: 1 } }, 'resource Shop: "spec" is not a z.object()'],
    [{ spec: z3.object({}) }, 'resource Shop: "spec" is not a z.object() of the z that fairlead exports'],
    [
      { spec: z.object({ size: 5 as never }) },
      'resource Shop: spec.size is not a schema of the z that fairlead exports',
    ],
    [
      { spec: z.object({ a: z.array(z.object({ b: z.optional(undefined as never) })) }) },
      'resource Shop: spec.a[].b is not a schema',
    ],
    [
      { status: z.object({ a: z.union([z.string(), z3.string() as never]) }) },
      'resource Shop: status.a is not a schema',
    ],
    [{ served: [{ version: 'v2', spec: {} }] }, 'resource Shop: v2 "spec" is not a z.object()'],
    [{ served: [{ version: 'v2', spec: z.object({ a: 1 as never }) }] }, 'resource Shop: v2 spec.a is not a schema'],
    [{ served: [{ version: 'v2', spec: z.object({}), old: true }] }, 'served[0] is {…}: Unrecognized key: "old"'],
    [{ plural: 'Shops' }, 'resource Shop: plural is "Shops": lower-case letters, digits and -, a letter first'],
    [{ group: 'example' }, 'resource Shop: group is "example": write a domain, such as example.com'],
    [{ version: '1' }, 'resource Shop: version is "1": lower-case letters'],
    [{ scope: 'Namespace' }, 'resource Shop: scope is "Namespace": Invalid option: expected one of "Namespaced"'],
    [{ columns: [{ name: 'Size', path: 'spec.size' }] }, 'columns[0].path is "spec.size": write a JSON path'],
    [{ columns: [{ name: 'Size', path: '.spec.size', type: 'int' }] }, 'columns[0].type is "int": Invalid option'],
    [{ scale: { spec: '.status.size', status: '.status.size' } }, 'scale.spec is ".status.size": write a JSON path'],
    [{ status: undefined }, 'resource Shop: "status" is not a z.object()'],
  ])('is refused with %j, in one line that says what to do', (wrong, message) => {
    const make = () => resource({ ...whole, ...wrong } as never)
    expect(make).toThrow(message)
    expect(make).toThrow(/^.*$/)
  })

  it.each([
    [z.object({ size: z.int32().min(1).default(0) }), 'the default of spec.size is wrong: spec.size is 0: Too small'],
    [
      z.object({ door: z.object({ wood: z.string() }).prefault({} as never) }),
      'the default of spec.door is wrong: spec.door.wood is missing: expected string',
    ],
    [z.object({ at: z.date() }), 'spec.at is a date, without a form in JSON'],
    [
      z.object({ at: z.string().meta({ 'x-kubernetes-validations': [{}] }) }),
      'spec.at.x-kubernetes-validations[0].rule',
    ],
  ])('is refused in one line with kind and path when its definition is made: %#', (spec, message) => {
    const made = () => resource({ ...whole, spec }).crd()
    expect(made).toThrow(`resource Shop: ${message}`)
    expect(made).toThrow(/^.*$/)
    const served = [{ version: 'v2', spec }]
    expect(() => resource({ ...whole, served }).crd()).toThrow(`resource Shop: v2 ${message}`)
  })

  it('is refused also where it is a kind of somebody else', () => {
    const options = { group: '', version: 'v1', kind: 'Namespace', plural: 'namespaces', scope: 'Cluster' }
    expect(() => kind(options)).toThrow('kind Namespace has an unknown option "scope": it takes group, version')
  })
})
