import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { breakingChanges, type CustomResourceDefinition, type ResourceOptions, resource } from '#sdk'

type Fields = Record<string, z.ZodType>
type Options = Partial<ResourceOptions<z.ZodObject, z.ZodObject>>

const crd = (spec: z.ZodObject, options: Options = {}) =>
  resource({
    group: 'example.com',
    version: 'v1',
    kind: 'Shop',
    plural: 'shops',
    spec,
    status: z.object({}),
    ...options,
  }).crd()

const found = (before: Fields, after: Fields) => breakingChanges(crd(z.object(before)), crd(z.object(after)))
const preserve = { 'x-kubernetes-preserve-unknown-fields': true }
const rule = (text: string) => ({ 'x-kubernetes-validations': [{ rule: text }] })

describe('a change of a schema breaks what is stored', () => {
  it.each<[string, Fields, Fields, string]>([
    ['another type', { a: z.string() }, { a: z.int() }, 'v1: spec.a was string, and would be integer'],
    ['a field less', { a: z.string(), b: z.string() }, { b: z.string() }, 'spec.a does not exist any more'],
    ['a new required field', {}, { a: z.string() }, 'spec.a would be required'],
    ['a field that is required now', { a: z.string().optional() }, { a: z.string() }, 'spec.a would be required'],
    ['an enum with a value less', { a: z.enum(['x', 'y']) }, { a: z.enum(['y']) }, 'spec.a would not take "x"'],
    ['an enum where there was any text', { a: z.string() }, { a: z.enum(['y']) }, 'spec.a would not take "any other"'],
    ['a higher minimum', { a: z.int32().min(1) }, { a: z.int32().min(2) }, 'spec.a would have minimum 2 instead of 1'],
    ['a first maximum', { a: z.int32() }, { a: z.int32().max(5) }, 'spec.a would have maximum 5'],
    ['a shorter text', { a: z.string() }, { a: z.string().max(5) }, 'spec.a would have maxLength 5'],
    ['a pattern', { a: z.string() }, { a: z.string().regex(/^a/) }, 'spec.a would have pattern "^a"'],
    ['a smaller number', { a: z.int() }, { a: z.int32() }, 'spec.a would have format "int32" instead of "int64"'],
    ['no null', { a: z.string().nullable() }, { a: z.string() }, 'spec.a could be null'],
    [
      'a rule',
      { a: z.string() },
      { a: z.string().meta(rule('self != ""')) },
      'spec.a would have to hold the rule self != ""',
    ],
    [
      'known fields only',
      { a: z.looseObject({}) },
      { a: z.object({}) },
      'spec.a could hold any field: unknown ones would be lost',
    ],
    ['no keys', { a: z.record(z.string(), z.string()) }, { a: z.object({}) }, 'spec.a had keys of any name'],
    [
      'something deep inside',
      { a: z.array(z.record(z.string(), z.object({ b: z.string() }))) },
      { a: z.array(z.record(z.string(), z.object({ b: z.int() }))) },
      'spec.a[].*.b was string, and would be integer',
    ],
  ])('%s', (_, before, after, message) => {
    expect(found(before, after).join('; ')).toContain(message)
  })

  it('a version that is not served, another scope', () => {
    const before = crd(z.object({}))
    expect(breakingChanges(before, crd(z.object({}), { version: 'v2' }))).toEqual(['version v1 is not served any more'])
    expect(breakingChanges(before, crd(z.object({}), { scope: 'Cluster' }))).toEqual([
      'its scope was Namespaced: it cannot be changed',
    ])
  })
})

describe('a change of a schema breaks nothing', () => {
  it.each<[string, Fields, Fields]>([
    ['nothing changes', { a: z.string() }, { a: z.string() }],
    ['an optional field more', {}, { a: z.string().optional() }],
    ['a required field with a default', {}, { a: z.string().default('x') }],
    ['less is required', { a: z.string() }, { a: z.string().optional() }],
    ['wider bounds', { a: z.int32().min(2).max(3) }, { a: z.int32().min(1).max(9) }],
    ['a larger number', { a: z.int32() }, { a: z.int() }],
    ['an enum with a value more', { a: z.enum(['x']) }, { a: z.enum(['x', 'y']) }],
    ['any text for an enum', { a: z.enum(['x']) }, { a: z.string() }],
    ['null too', { a: z.string() }, { a: z.string().nullable() }],
    ['a rule on changes', { a: z.string() }, { a: z.string().meta(rule('self == oldSelf')) }],
    ['a description', { a: z.string() }, { a: z.string().describe('what it is') }],
    ['any field', { a: z.object({ b: z.string() }) }, { a: z.looseObject({}) }],
    ['anything', { a: z.string() }, { a: z.unknown().meta(preserve) }],
    ['keys of any name for some', { a: z.object({ b: z.string() }) }, { a: z.record(z.string(), z.string()) }],
  ])('%s', (_, before, after) => {
    expect(found(before, after)).toEqual([])
  })

  it('fields of a status come and go: a function writes it anew', () => {
    const status = (fields: Fields) => crd(z.object({}), { status: z.object(fields) })
    expect(breakingChanges(status({ a: z.string() }), status({ b: z.string() }))).toEqual([])
    expect(breakingChanges(status({ a: z.string() }), status({ a: z.int() }))).toHaveLength(1)
  })
})

describe('the definition of another framework, by controller-gen', async () => {
  const text = await readFile(join(import.meta.dirname, '../support/controller-gen.yaml'), 'utf8')
  const { spec: names } = parse(text) as CustomResourceDefinition
  const size = z.int32().min(1).max(3).optional()
  /** What is reported after a change of the text of the earlier definition. */
  const ported = (spec: Fields, from = '', to = '') => {
    expect(text).toContain(from)
    const options = { group: names.group, version: 'v1alpha1', kind: 'Memcached', plural: 'memcacheds' }
    return breakingChanges(parse(text.replace(from, to)) as CustomResourceDefinition, crd(z.object(spec), options))
  }

  it('may be replaced by the same fields: apiVersion, kind, metadata and conditions of metav1 stay', () => {
    expect(ported({ size, containerPort: z.int32().optional() })).toEqual([])
  })

  it.each<[string, Fields, string, string, string]>([
    ['a field of the spec less', { size }, '', '', 'spec.containerPort does not exist any more'],
    [
      'a condition that may have no reason',
      { size, containerPort: z.int32().optional() },
      '                      - reason\n',
      '',
      'status.conditions[].reason would be required',
    ],
    [
      'a condition whose type may be empty',
      { size, containerPort: z.int32().optional() },
      '[A-Za-z0-9])$',
      '[A-Za-z0-9]|)$',
      'status.conditions[].type would have minLength 1',
    ],
    [
      'another field that is called kind',
      { size, containerPort: z.int32().optional() },
      'containerPort',
      'kind',
      'spec.kind does not exist any more',
    ],
  ])('is compared all the same: %s', (_, spec, from, to, message) => {
    expect(ported(spec, from, to)).toEqual([expect.stringContaining(message)])
  })
})

describe('several versions', () => {
  const spec = z.object({ size: z.int32(), title: z.string().optional() })
  const older = (fields: Fields) => ({ version: 'v1beta1', spec: z.object(fields), deprecated: 'use example.com/v1' })

  it('are served beside the one that is stored', () => {
    const { versions } = crd(spec, { served: [older({ size: z.int32().min(1) })] }).spec
    expect(versions).toMatchObject([
      { name: 'v1', served: true, storage: true },
      { name: 'v1beta1', served: true, storage: false, deprecated: true, deprecationWarning: 'use example.com/v1' },
    ])
  })

  it.each<[Fields, string]>([
    [{ size: z.int32(), colour: z.string() }, 'in v1 spec.colour does not exist any more'],
    [{ size: z.string() }, 'in v1 spec.size was string, and would be integer'],
    [{}, 'in v1 spec would be required'],
  ])('are refused where the stored one could not hold what they admit: %j', (fields, message) => {
    expect(() => crd(spec, { served: [older(fields)] })).toThrow(`resource Shop: v1beta1 cannot be served beside v1`)
    expect(() => crd(spec, { served: [older(fields)] })).toThrow(message)
  })

  it('may change which one is stored, if that holds what the other one has', () => {
    const before = crd(spec)
    const wider = z.object({ size: z.int(), title: z.string().optional(), note: z.string().optional() })
    const served = [{ version: 'v1', spec }]
    expect(breakingChanges(before, crd(wider, { version: 'v2', served }))).toEqual([])
  })
})
