import { describe, expect, it } from 'vitest'
import { exactlyOneOf, immutable, type KubeObject, labelled, moved, named, onlyGroups, resource, z } from '#sdk'

const spec = z.object({
  size: z.int32().min(1),
  image: z.string().optional(),
  snapshot: z.string().optional(),
  cron: z
    .string()
    .refine((text) => text !== 'never', 'it never comes')
    .optional(),
  ports: z.array(z.object({ port: z.int32() })).optional(),
  labels: z.record(z.string(), z.string()).optional(),
  template: z.looseObject({}).optional(),
  level: z
    .int32()
    .default(3)
    .meta({ 'x-kubernetes-validations': [{ rule: 'self < 9' }] }),
})
const names = { group: 'example.com', version: 'v1', kind: 'Disk', plural: 'disks', status: z.object({}) } as const
const Disk = resource({
  ...names,
  spec,
  validations: [{ rule: 'self.metadata.name.size() < 9' }],
  rules: [
    exactlyOneOf(['.spec.image', '.spec.snapshot']),
    immutable('.spec.size'),
    named(/^[a-z]+$/),
    onlyGroups(['admins'], ['DELETE']),
    labelled('team', /^a/),
  ],
  validate: ({ spec: { size, level } }) => [
    ...(size > 100 ? [{ path: '.spec.size', message: 'larger than any disk' }] : []),
    ...(level === 3 ? [{ path: '.spec.level', message: 'better say which', warning: true }] : []),
  ],
})
const object = (more: object, name = 'a', apiVersion = 'example.com/v1') => ({
  apiVersion,
  kind: 'Disk',
  metadata: { name },
  spec: { size: 1, image: 'a', level: 1, ...more },
})
const found = (...paths: [string, string][]) =>
  paths.map(([path, message]) => ({ path, message, reason: 'FieldValueInvalid' }))

describe('check of a resource', () => {
  it('admits an object, and says what the API server alone checks', () => {
    const template = { spec: { any: 1 } }
    expect(Disk.check(object({ labels: { a: 'b' }, ports: [{ port: 1 }], template }))).toEqual({
      refusals: [],
      warnings: [],
      unchecked: [
        'self.metadata.name.size() < 9',
        'self < 9',
        'onlyGroups admins DELETE',
        expect.stringMatching(/^labelled team/),
      ],
    })
  })

  it.each<[string, KubeObject, [string, string][]]>([
    [
      'all fields that the schema refuses or does not have',
      object({ size: 0, ports: [{ port: 'http', prt: 1 }], imge: 'a' }),
      [
        ['spec.ports[0].prt', 'the schema has no such field'],
        ['spec.imge', 'the schema has no such field'],
        ['spec.size', 'is 0: Too small: expected number to be >=1'],
        ['spec.ports[0].port', 'is "http": expected number, received string'],
      ],
    ],
    ['a field beside the spec', { ...object({}), sped: {} }, [['sped', 'the schema has no such field']]],
    [
      'an object without a spec',
      { ...object({}), spec: undefined },
      [['spec.size', 'is missing: expected number, received undefined']],
    ],
    ['a check in code', object({ cron: 'never' }), [['spec.cron', 'is "never": it never comes']]],
    [
      'a version that is not declared',
      object({}, 'a', 'example.com/v2'),
      [['apiVersion', 'example.com/v2 Disk is no Disk of example.com/v1']],
    ],
  ])('names %s', (_, one, refusals) => {
    expect(Disk.check(one).refusals).toEqual(found(...refusals))
  })

  it('names what rules and validate refuse together, and warnings', () => {
    const { refusals, warnings } = Disk.check(object({ size: 200, snapshot: 'b', level: undefined }, 'A1'))
    expect(refusals.map(({ path }) => path)).toEqual(['spec', 'metadata.name', 'spec.size'])
    expect(warnings).toEqual(found(['spec.level', 'better say which']))
  })

  it('judges an object of another version by that version, and then as it is stored', () => {
    const Old = resource({
      ...names,
      spec: z.object({ http: z.object({ url: z.string().max(3) }) }),
      served: [
        { version: 'v1beta1', spec: z.object({ url: z.string() }), convert: [moved('.spec.url', '.spec.http.url')] },
      ],
      validate: ({ spec: { http } }) => (http.url === 'no' ? [{ path: '.spec.http.url', message: 'it says no' }] : []),
    })
    const old = (wanted: object) => ({ ...object({}), apiVersion: 'example.com/v1beta1', spec: wanted })
    expect(Old.check(old({ url: 'yes' })).refusals).toEqual([])
    expect(Old.check(old({ url: 'no' })).refusals).toEqual(found(['spec.http.url', 'it says no']))
    expect(Old.check(old({ url: 1 })).refusals).toMatchObject([{ path: 'spec.url' }])
    expect(Old.check(old({ url: 'long' })).refusals).toMatchObject([{ path: 'v1 spec.http.url' }])
    expect(Old.check(old({ http: { url: 'a' } })).refusals).toMatchObject([{ path: 'spec.http' }, { path: 'spec.url' }])
  })

  it('fails if validate throws', () => {
    const Bad = resource({ ...names, spec: z.object({}), validate: () => JSON.parse('{') as never })
    expect(() => Bad.check({ ...object({}), spec: {} })).toThrow('resource Disk: validate throws SyntaxError')
  })
})
