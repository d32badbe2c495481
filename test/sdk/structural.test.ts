import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { toStructural } from '../../sdk/structural.ts'

const PRESERVE = { 'x-kubernetes-preserve-unknown-fields': true } as const

describe('a structural schema', () => {
  it.each<[string, z.ZodType, unknown]>([
    [
      'a string',
      z
        .string()
        .min(1)
        .max(9)
        .regex(/^a\d+$/),
      { type: 'string', pattern: '^a\\d+$', minLength: 1, maxLength: 9 },
    ],
    [
      'several patterns',
      z.string().startsWith('a').endsWith('b'),
      { type: 'string', allOf: [{ pattern: '^a.*' }, { pattern: '.*b$' }] },
    ],
    ['an integer', z.int(), { type: 'integer', format: 'int64' }],
    ['an integer of 32 bit', z.int32(), { type: 'integer', format: 'int32' }],
    [
      'an integer within 32 bit',
      z.int().min(1).max(65_535),
      { type: 'integer', format: 'int32', minimum: 1, maximum: 65_535 },
    ],
    ['an unsigned integer', z.uint32(), { type: 'integer', format: 'int64', minimum: 0, maximum: 4_294_967_295 }],
    ['a number', z.number().gt(0), { type: 'number', minimum: 0, exclusiveMinimum: true }],
    ['a float', z.float64(), { type: 'number' }],
    ['an enum', z.enum(['a', 'b']), { type: 'string', enum: ['a', 'b'] }],
    ['a literal', z.literal('a'), { type: 'string', enum: ['a'] }],
    ['a time', z.iso.datetime({ offset: true }), { type: 'string', format: 'date-time' }],
    ['a uuid, by format and pattern', z.uuidv4(), { type: 'string', format: 'uuid', pattern: expect.any(String) }],
    ['an unknown format, by pattern', z.nanoid(), { type: 'string', pattern: '^[a-zA-Z0-9_-]{21}$' }],
    ['int or string', z.union([z.int(), z.string()]), { 'x-kubernetes-int-or-string': true }],
    ['a nullable', z.string().nullable(), { type: 'string', nullable: true }],
    ['a default', z.int32().default(3), { type: 'integer', format: 'int32', default: 3 }],
    [
      'a record',
      z.record(z.string(), z.int32()),
      { type: 'object', additionalProperties: { type: 'integer', format: 'int32' } },
    ],
    ['a record of anything', z.record(z.string(), z.unknown()), { type: 'object', ...PRESERVE }],
    ['anything, if asked for', z.unknown().meta(PRESERVE), PRESERVE],
    ['anything, optional', z.unknown().optional().readonly().meta(PRESERVE), PRESERVE],
    ['anything, with a default', z.any().default(1).meta(PRESERVE), { ...PRESERVE, default: 1 }],
    ['a transform, by its input', z.string().transform(Number), { type: 'string' }],
    ['a check in code, left to code', z.string().refine((text) => text > 'a'), { type: 'string' }],
    [
      'notes for readers, left out',
      z
        .string()
        .readonly()
        .meta({ examples: ['a'] }),
      { type: 'string' },
    ],
    [
      'objects, optional fields and defaults not required',
      z.object({ a: z.string(), b: z.int32().optional(), c: z.string().default('x') }),
      {
        type: 'object',
        required: ['a'],
        properties: {
          a: { type: 'string' },
          b: { type: 'integer', format: 'int32' },
          c: { type: 'string', default: 'x' },
        },
      },
    ],
    [
      'strict objects',
      z.strictObject({ a: z.string().optional() }),
      { type: 'object', properties: { a: { type: 'string' } } },
    ],
    [
      'loose objects',
      z.looseObject({ a: z.string().optional() }),
      { type: 'object', properties: { a: { type: 'string' } }, ...PRESERVE },
    ],
    [
      'list maps and rules, as given',
      z.array(z.object({ name: z.string() })).meta({
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['name'],
        'x-kubernetes-validations': [{ rule: 'size(self) < 9' }],
      }),
      {
        type: 'array',
        items: { type: 'object', required: ['name'], properties: { name: { type: 'string' } } },
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['name'],
        'x-kubernetes-validations': [{ rule: 'size(self) < 9' }],
      },
    ],
  ])('says %s', (_, schema, expected) => {
    expect(toStructural(schema, 'spec')).toEqual(expected)
  })
})

const tree = z.object({
  get children() {
    return z.array(tree)
  },
})

describe('what a CRD cannot say is refused, by path', () => {
  it.each<[string, z.ZodType, string]>([
    ['a union', z.object({ a: z.union([z.string(), z.object({})]) }), 'spec.a is a union'],
    ['int or string with limits', z.union([z.int().min(1), z.string()]), 'spec is a union'],
    [
      'a discriminated union',
      z.object({
        a: z.discriminatedUnion('t', [z.object({ t: z.literal('x') }), z.object({ t: z.literal('y') })]),
      }),
      'spec.a is a union',
    ],
    [
      'a tuple',
      z.object({ list: z.array(z.object({ pair: z.tuple([z.int(), z.string()]) })) }),
      'spec.list[].pair is a tuple',
    ],
    ['anything', z.object({ a: z.any() }), 'spec.a has no single type'],
    ['mixed literals', z.object({ a: z.literal([1, 'a']) }), 'spec.a has no single type'],
    ['recursion', z.object({ tree }), 'is recursive or has an id'],
    ['a shared definition', z.object({ a: z.string().meta({ id: 'shared' }) }), 'spec.a is recursive or has an id'],
    ['a nullable enum', z.object({ a: z.enum(['x']).nullable() }), 'spec.a has null beside an enum'],
    ['null alone', z.object({ a: z.null() }), 'spec.a accepts nothing, or null alone'],
    ['never', z.object({ a: z.never().optional() }), 'spec.a accepts nothing, or null alone'],
    ['a date', z.object({ map: z.record(z.string(), z.object({ d: z.date() })) }), 'spec.map.*.d is a date'],
    ['optional anything', z.object({ a: z.any().optional() }), 'spec.a has no single type'],
    ['a class', z.object({ a: z.instanceof(URL).optional() }), 'spec.a is a custom'],
    ['a map', z.object({ a: z.map(z.string(), z.string()).optional() }), 'spec.a is a map'],
    ['a bigint', z.object({ a: z.bigint() }), 'spec.a is a bigint'],
    ['flags', z.object({ a: z.string().regex(/x/i).optional() }), 'spec.a has flags on its pattern /x/i'],
    ['look-ahead', z.object({ a: z.string().regex(/x(?!y)/) }), 'spec.a looks around in its pattern /x(?!y)/'],
    [
      'look-behind in one of several',
      z
        .string()
        .startsWith('a')
        .regex(/(?<=x)y/),
      'spec looks around',
    ],
    ['a back-reference', z.string().regex(/(a)\1/), 'spec refers back'],
    ['limited keys', z.object({ a: z.record(z.enum(['x']), z.string()) }), 'spec.a limits the keys of a record'],
    ['patterned keys', z.record(z.string().regex(/x/), z.string()), 'spec limits the keys of a record'],
    ['typed others', z.object({ a: z.string() }).catchall(z.string()), 'spec types its unnamed fields'],
    ['foreign keywords', z.object({ a: z.string().meta({ widget: 'x' }) }), 'spec.a has the keyword "widget"'],
    [
      'a property called properties',
      z.object({ properties: z.object({ items: z.date() }) }),
      'spec.properties.items is a date',
    ],
  ])('%s', (_, schema, message) => {
    expect(() => toStructural(schema, 'spec')).toThrow(message)
    expect(() => toStructural(schema, 'spec')).toThrow('which a CustomResourceDefinition cannot express: ')
  })
})

describe('a rule in CEL that Kubernetes would refuse is refused, by path', () => {
  it.each<[object | string, string]>([
    ['size(self) < 9', 'spec.tags.x-kubernetes-validations is "size(self) < 9": expected array'],
    [[{ message: 'x' }], 'spec.tags.x-kubernetes-validations[0].rule is missing: expected string'],
    [[{ rule: ' ' }], 'x-kubernetes-validations[0].rule is " ": write an expression in CEL'],
    [[{ rule: 'true' }, { rule: 'true', mesage: 'x' }], 'validations[1] has an unknown option "mesage": did you mean'],
    [[{ rule: 'true', message: 'a\nb' }], '[0].message is "a\\nb": write it in one line'],
    [[{ rule: 'true &&\ntrue' }], '[0].message is missing: a rule of several lines needs one'],
    [[{ rule: 'true', reason: 'Bad' }], '[0].reason is "Bad": Invalid option: expected one of "FieldValueInvalid"'],
    [[{ rule: 'true', fieldPath: 'a' }], '[0].fieldPath is "a": write .spec.size'],
    [[{ rule: 'true', fieldPath: '.a' }], '[0].fieldPath is ".a": the schema has no such field'],
    [
      [{ rule: "self != 'oldSelf'", optionalOldSelf: true }],
      '[0].optionalOldSelf is true: only for a rule with oldSelf',
    ],
  ])('%j', (rules, message) => {
    const schema = z.object({ tags: z.array(z.string()).meta({ 'x-kubernetes-validations': rules }) })
    const make = () => toStructural(schema, 'spec')
    expect(make).toThrow(message)
    expect(make).toThrow(/^spec\.tags\..*$/)
  })
})
