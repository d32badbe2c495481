import { describe, expect, it } from 'vitest'
import {
  atLeastOneOf,
  atMost,
  atMostOneOf,
  breakingChanges,
  defaultFrom,
  definitionsOf,
  exactlyOneOf,
  immutable,
  labelled,
  named,
  notDeletedWhile,
  onlyGroups,
  onlyGrows,
  policiesOf,
  type Resource,
  type Rule,
  reconciler,
  reserved,
  resource,
  setOnce,
  together,
  unique,
  z,
} from '#sdk'

const spec = z.object({
  name: z.string(),
  'a-b': z.string().optional(),
  in: z.object({ for: z.string().optional() }).optional(),
  size: z.int32().optional(),
  ratio: z.number().optional(),
  limit: z.int32().nullable().optional(),
  any: z.any().meta({ 'x-kubernetes-preserve-unknown-fields': true }).optional(),
  login: z.object({ host: z.string().optional() }).optional(),
  labels: z.record(z.string(), z.string()).optional(),
  ports: z.array(z.object({ name: z.string().max(63), port: z.int32(), host: z.string().max(63).optional() })).max(10),
  bare: z.array(z.object({ name: z.string().optional() })).optional(),
  tags: z.array(z.string()).optional(),
})
const shop = (rules: readonly Rule[], more: object = {}): Resource =>
  resource({
    group: 'example.com',
    version: 'v1',
    kind: 'Shop',
    plural: 'shops',
    spec,
    status: z.object({ bound: z.string() }),
    rules,
    ...more,
  })
const rootOf = (kind: Resource) => kind.crd().spec.versions[0]?.schema.openAPIV3Schema
const specOf = (kind: Resource) => rootOf(kind)?.properties?.['spec']
const RULES = 'x-kubernetes-validations'

describe('a rule of a definition', () => {
  it.each<[string, Rule, object]>([
    [
      'immutable',
      immutable('.spec.size'),
      {
        rule: '(has(self.spec) && has(self.spec.size)) == (has(oldSelf.spec) && has(oldSelf.spec.size)) && (!(has(self.spec) && has(self.spec.size)) || self.spec.size == oldSelf.spec.size)',
        message: 'spec.size cannot be changed',
        reason: 'FieldValueForbidden',
        fieldPath: '.spec.size',
      },
    ],
    [
      'setOnce, of a field with a reserved name',
      setOnce('.spec.in.for', { message: 'once' }),
      {
        rule: '!(has(oldSelf.spec) && has(oldSelf.spec.__in__) && has(oldSelf.spec.__in__.__for__)) || (has(self.spec) && has(self.spec.__in__) && has(self.spec.__in__.__for__) && self.spec.__in__.__for__ == oldSelf.spec.__in__.__for__)',
        message: 'once',
        reason: 'FieldValueForbidden',
        fieldPath: '.spec.in.for',
      },
    ],
    [
      'named, which objects of before need not be',
      named(/^[a-z']+$/),
      {
        rule: String.raw`oldSelf.hasValue() || (self.metadata.name.matches('^[a-z\']+$'))`,
        message: "the name has to match ^[a-z']+$",
        fieldPath: '.metadata.name',
        optionalOldSelf: true,
      },
    ],
  ])('on the whole object: %s', (_, rule, expected) => {
    expect(rootOf(shop([rule]))?.[RULES]).toEqual([expected])
  })

  it.each<[Rule, string]>([
    [atMostOneOf(['.spec.size', '.spec.ratio']), '!(has(self.size) && has(self.ratio))'],
    [together(['.spec.size', '.spec.in.for']), 'has(self.size) == (has(self.__in__) && has(self.__in__.__for__))'],
    [
      atMostOneOf(['.spec.size', ".spec['a-b']"], { when: ['.spec.ratio', 2] }),
      '!(has(self.ratio) && self.ratio == 2.0) || (!(has(self.size) && has(self.a__dash__b)))',
    ],
    [atMost('.spec.size', '.spec.ratio'), '!(has(self.size) && has(self.ratio)) || self.size <= self.ratio'],
  ])('is on the object that has its fields, so that others may change beside them: $title', (rule, cel) => {
    expect(specOf(shop([rule]))?.[RULES]).toEqual([
      expect.objectContaining({ rule: expect.stringContaining(` || (${cel})`), optionalOldSelf: true }),
    ])
  })

  it.each<[string, Rule, string]>([
    ['one field', atMostOneOf(['.spec.in.for']), 'has(self.__for__) == has(oldSelf.value().__for__)'],
    [
      'its condition',
      atMost('.spec.size', '.spec.ratio', { when: '.spec.limit' }),
      'self.limit == oldSelf.value().limit',
    ],
    ['a record', reserved('.spec.labels', ['app']), 'oldSelf.hasValue() && (self == oldSelf.value())'],
  ])('on values does not concern a write that leaves them: it compares %s', (_, rule, same) => {
    expect(JSON.stringify(shop([rule]).crd())).toContain(same)
  })

  it('is on the record, or on the element of a list', () => {
    const rules = [
      reserved('.spec.labels', ['app', 'etcd_*']),
      unique('.spec.ports', 'name'),
      unique('.spec.tags'),
      onlyGrows('.spec.ports[].port'),
    ]
    const { labels, ports, tags } = specOf(shop(rules))?.properties ?? {}
    expect(labels?.[RULES]).toMatchObject([
      {
        rule: "(oldSelf.hasValue() && (self == oldSelf.value())) || (self.all(key, key != 'app' && !key.startsWith('etcd_')))",
      },
    ])
    expect(ports).toMatchObject({ 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] })
    expect(ports?.items?.[RULES]).toMatchObject([
      { rule: '!has(oldSelf.port) || (has(self.port) && self.port >= oldSelf.port)' },
    ])
    expect(tags).toMatchObject({ 'x-kubernetes-list-type': 'set' })
  })

  it('is on the whole object if an object without a spec breaks it, and then names the spec', () => {
    const optional = (rule: Rule) =>
      rootOf(shop([rule], { spec: z.object({ a: z.string().optional(), b: z.string().optional() }) }))
    expect(optional(atMostOneOf(['.spec.a', '.spec.b']))?.[RULES]).toBeUndefined()
    const { required, [RULES]: rules } = optional(exactlyOneOf(['.spec.a', '.spec.b'])) ?? {}
    expect(required).toBeUndefined()
    expect(rules).toMatchObject([{ fieldPath: '.spec', rule: expect.stringContaining('has(self.spec.a)') }])
  })

  it('is in each version that is served, and stands beside other validations', () => {
    const served = [{ version: 'v1beta1', spec }]
    const validations = [{ rule: 'self.spec.name != self.metadata.name' }]
    const { versions } = shop([immutable('.spec.name')], { served, validations }).crd().spec
    for (const { schema } of versions) expect(schema.openAPIV3Schema[RULES]).toHaveLength(2)
  })

  it.each<[() => Rule[], string]>([
    [() => [immutable('.spec.sise')], 'rules: immutable .spec.sise: the schema has no field spec.sise'],
    [() => [immutable('.spec.any')], 'spec.any has no type, so CEL cannot read it'],
    [() => [immutable('.metadata.labels')], 'labels have labelled()'],
    [() => [onlyGrows('.spec.name')], 'spec.name is string: it has to be integer or number'],
    [() => [onlyGrows('.spec.limit')], 'spec.limit may be null, which has no order'],
    [
      () => [immutable('.spec.ports[].port')],
      "elements of spec.ports cannot be found again after a write: add unique('.spec.ports', KEY)",
    ],
    [() => [unique('.spec.ports')], 'the elements of spec.ports are objects: name their key'],
    [
      () => [unique('.spec.bare', 'name')],
      'spec.bare[].name may be left out, so it cannot be the key: make it required',
    ],
    [() => [unique('.spec.name')], 'spec.name is not a list'],
    [() => [atMost('.spec.size', '.spec.ports[].port')], 'the fields are in different elements'],
    [() => [defaultFrom('.spec.size', '.metadata.name')], 'spec.size is integer, and metadata.name is string'],
    [() => [onlyGroups(['a'], '.spec.sise')], 'the schema has no field spec.sise'],
    [() => [immutable('spec.size' as '.spec')], '"spec.size" is not the path of a field: write .spec.size'],
    [() => [named(/a(?=b)/)], 'looks around in its pattern'],
    [() => [named(/a/i)], 'has flags'],
    [() => [onlyGroups(['a'], '.status.bound')], 'protects a field of the spec'],
    [() => [{} as Rule], 'call a builder, such as immutable()'],
  ])('says what is wrong with it: %s', (rules, message) => {
    expect(() => shop(rules()).crd()).toThrow(message)
  })

  it('is no breaking change if it spares what is stored, and is one in a list whose elements have no keys', () => {
    const changes = (...rules: Rule[]) => breakingChanges(shop([]).crd(), shop(rules).crd())
    expect(
      changes(
        exactlyOneOf(['.spec.size', '.spec.ratio']),
        atMostOneOf(['.spec.size', '.spec.login.host']),
        atMost('.spec.size', '.spec.ratio'),
        reserved('.spec.labels', ['app']),
        named(/^[a-z]+$/),
        immutable('.spec.name'),
      ),
    ).toEqual([])
    expect(changes(atMostOneOf(['.spec.ports[].host', '.spec.ports[].port']))).toEqual([
      'v1: spec.ports[] would have to hold the rule !(has(self.host) && has(self.port))',
    ])
  })
})

describe('admit()', () => {
  const at = (spec: object, metadata: object = {}) =>
    shop([]).of({ metadata: { name: 'a', ...metadata }, spec: spec as never })
  const base = { name: 'a', ports: [] }
  const pathsOf = (rules: Rule[], write: Parameters<Resource['admit']>[0]) =>
    shop(rules)
      .admit(write)
      .violations.map(({ path }) => path)

  it.each<[string, Rule[], object | undefined, object, string[]]>([
    ['a field that is set later', [immutable('.spec.size')], base, { ...base, size: 1 }, ['spec.size']],
    ['a field that is set once', [setOnce('.spec.size')], base, { ...base, size: 1 }, []],
    ['a field that is left out again', [setOnce('.spec.size')], { ...base, size: 1 }, base, ['spec.size']],
    ['a number that shrinks', [onlyGrows('.spec.size')], { ...base, size: 2 }, { ...base, size: 1 }, ['spec.size']],
    [
      'a broken rule on fields that stay',
      [atMost('.spec.size', '.spec.ratio')],
      { ...base, size: 2, ratio: 1 },
      { ...base, size: 2, ratio: 1 },
      [],
    ],
    [
      'a broken rule beside a change',
      [atMost('.spec.size', '.spec.ratio')],
      { ...base, size: 2, ratio: 1 },
      { ...base, name: 'b', size: 2, ratio: 1 },
      [],
    ],
    [
      'a broken rule, of which one field changes',
      [atMost('.spec.size', '.spec.ratio')],
      { ...base, size: 2, ratio: 1 },
      { ...base, size: 3, ratio: 1 },
      ['spec'],
    ],
    [
      'a condition that comes to fields that were there',
      [atMostOneOf(['.spec.size', '.spec.ratio'], { when: '.spec.limit' })],
      { ...base, size: 2, ratio: 1 },
      { ...base, size: 2, ratio: 1, limit: 1 },
      ['spec'],
    ],
    [
      'a condition that comes to a rule on the whole object',
      [atLeastOneOf(['.spec.size'], { when: ['.spec.name', 'b'] })],
      base,
      { ...base, name: 'b' },
      ['spec.size'],
    ],
    [
      'elements in another order',
      [unique('.spec.ports', 'name'), immutable('.spec.ports[].port')],
      {
        ...base,
        ports: [
          { name: 'a', port: 1 },
          { name: 'b', port: 2 },
        ],
      },
      {
        ...base,
        ports: [
          { name: 'b', port: 2 },
          { name: 'a', port: 3 },
        ],
      },
      ['spec.ports[1].port'],
    ],
    ['an element twice', [unique('.spec.tags')], undefined, { ...base, tags: ['a', 'b', 'a'] }, ['spec.tags[2]']],
    ['a reserved key', [reserved('.spec.labels', ['a*'])], undefined, { ...base, labels: { ab: '' } }, ['spec.labels']],
  ])('%s', (_, rules, old, object, paths) => {
    expect(pathsOf(rules, { object: at(object), ...(old && { old: at(old) }) })).toEqual(paths)
  })

  it('names an element that is there twice as the API server does', () => {
    const tags = [unique('.spec.tags'), { ...base, tags: ['a', 'a'] }] as const
    const port = { name: 'a', port: 1 }
    const ports = [unique('.spec.ports', 'name'), { ...base, ports: [port, { ...port, port: 2 }] }] as const
    const found = [tags, ports].map(([rule, object]) => shop([rule]).admit({ object: at(object) }).violations)
    expect(found.flat().map(({ path, message }) => `${path}: ${message}`)).toEqual([
      'spec.tags[1]: Duplicate value: "a"',
      'spec.ports[1]: Duplicate value: {"name":"a"}',
    ])
  })

  it('asks policies only about users', () => {
    const rules = [labelled('team', /^a$/), onlyGroups(['admins'], '.spec.size'), notDeletedWhile('.spec.size', 1)]
    const one = at({ ...base, size: 1 }, { labels: { team: 'a' } })
    const other = at({ ...base, size: 2 }, { labels: { team: 'b' } })
    expect(pathsOf(rules, { object: other, old: one })).toEqual([])
    expect(pathsOf(rules, { object: other, old: one, groups: [] })).toEqual(['', 'spec.size'])
    expect(pathsOf(rules, { object: other, old: one, groups: ['admins'] })).toEqual([''])
    expect(pathsOf(rules, { object: other, groups: [] })).toEqual([''])
    expect(pathsOf(rules, { old: one, groups: [] })).toEqual(['spec.size'])
    expect(pathsOf(rules, { old: other, groups: [] })).toEqual([])
  })

  it('refuses a change of the owners by whoever may not delete, since garbage collection deletes without asking', () => {
    const rules = [onlyGroups(['admins'], ['DELETE']), notDeletedWhile('.spec.size', 1)]
    const ownerReferences = [{ apiVersion: 'v1', kind: 'ConfigMap', name: 'none', uid: 'u' }]
    const [one, owned] = [at({ ...base, size: 1 }), at({ ...base, size: 1 }, { ownerReferences })]
    const free = at({ ...base, size: 2 }, { ownerReferences })
    const owners = 'metadata.ownerReferences'
    expect(pathsOf(rules, { object: owned, groups: [] })).toEqual([])
    expect(pathsOf(rules, { object: owned, old: one, groups: [] })).toEqual([owners, owners])
    expect(pathsOf(rules, { object: one, old: owned, groups: ['admins'] })).toEqual([owners])
    expect(pathsOf(rules, { object: at({ ...base, size: 2 }), old: free, groups: ['admins'] })).toEqual([])
    expect(pathsOf(rules, { object: { ...owned, spec: { ...base, size: 3 } }, old: owned, groups: [] })).toEqual([])
  })

  it('finds the places of its rules once, and not for each write', () => {
    let reads = 0
    const { paths, ...rule } = atMost('.spec.size', '.spec.ratio') as Extract<Rule, { in: 'definition' }>
    const counted = Object.defineProperty(rule, 'paths', { get: () => (reads++, paths) }) as Rule
    const kind = shop([Object.freeze(counted)])
    const write = { object: at({ ...base, size: 2, ratio: 1 }) }
    expect(kind.admit(write).violations).toHaveLength(1)
    const once = reads
    for (let round = 0; round < 3; round++) kind.admit(write)
    expect(reads).toBe(once)
  })

  it('fills in what is left out at creation, and nothing else', () => {
    const kind = shop([defaultFrom('.spec.login.host', '.metadata.name')])
    expect(kind.admit({ object: at(base) }).object?.spec).toEqual({ ...base, login: { host: 'a' } })
    expect(kind.admit({ object: at({ ...base, login: { host: 'b' } }) }).object?.spec).toEqual({
      ...base,
      login: { host: 'b' },
    })
    expect(kind.admit({ object: at(base), old: at(base) }).object?.spec).toEqual(base)
  })
})

describe('the policies of a resource', () => {
  it('match its own resource alone, in all its versions, and fail closed', () => {
    const served = [{ version: 'v1beta1', spec }]
    const rules = [
      onlyGroups(['admins', "o'neil"], ['CREATE', 'DELETE']),
      defaultFrom('.spec.login.host', '.spec.name'),
    ]
    const [check, bound, fill] = shop(rules, { served }).policies(['system:serviceaccount:s:fairlead-shop'])
    const match = {
      apiGroups: ['example.com'],
      apiVersions: ['v1', 'v1beta1'],
      resources: ['shops'],
      scope: 'Namespaced',
    }
    expect(check).toMatchObject({
      kind: 'ValidatingAdmissionPolicy',
      metadata: { name: 'fairlead-shops.example.com' },
      spec: {
        failurePolicy: 'Fail',
        matchConstraints: { resourceRules: [{ ...match, operations: ['CREATE', 'DELETE', 'UPDATE'] }] },
        matchConditions: [{ expression: expect.stringContaining("'system:serviceaccount:s:fairlead-shop'") }],
        validations: [
          {
            expression: String.raw`request.operation in ['UPDATE'] || (request.userInfo.groups.exists(group, group in ['admins', 'o\'neil']))`,
            message: "only admins or o'neil may create or delete it",
          },
          {
            expression: expect.stringMatching(
              /^request.operation in \['CREATE', 'DELETE'\] .*object.metadata.ownerReferences/,
            ),
            message: "only admins or o'neil may create or delete it (another owner could delete it)",
          },
        ],
      },
    })
    expect(bound?.spec).toEqual({ policyName: 'fairlead-shops.example.com', validationActions: ['Deny', 'Audit'] })
    expect(fill).toMatchObject({
      kind: 'MutatingAdmissionPolicy',
      spec: {
        failurePolicy: 'Fail',
        matchConstraints: { resourceRules: [{ ...match, operations: ['CREATE'] }] },
      },
    })
  })

  it('protect a size from kubectl scale too', () => {
    const scale = { spec: '.spec.size', status: '.status.bound' }
    const rules = [onlyGroups(['admins'], '.spec.size'), labelled('team', /a/)]
    const [{ spec: policy } = {}] = shop(rules, { scale }).policies([]) as {
      spec?: { matchConstraints: object; validations: { expression: string }[] }
    }[]
    expect(policy?.matchConstraints).toMatchObject({
      resourceRules: [{}, { resources: ['shops/scale'], operations: ['UPDATE'] }],
    })
    expect(policy?.validations.map(({ expression }) => expression)).toEqual([
      expect.stringMatching(
        /^has\(request.subResource\) && request.subResource == 'scale' \? .*spec.replicas.* : .*spec.size/,
      ),
      expect.stringMatching(/scale' \? true : \(request.operation in|scale' \? true : \(/),
    ])
  })

  it('are there once for all functions of the resource, and exempt each of them', () => {
    const kind = shop([labelled('team', /a/)])
    const functions = ['b', 'a'].map((name) => reconciler({ name, for: kind, reconcile: () => undefined }))
    const [policy, binding, ...more] = policiesOf(functions)
    expect(more).toEqual([])
    expect(binding?.kind).toBe('ValidatingAdmissionPolicyBinding')
    expect(JSON.stringify(policy)).toContain(
      "in ['system:serviceaccount:fairlead-system:fairlead-a', 'system:serviceaccount:fairlead-system:fairlead-b', ",
    )
    expect(definitionsOf(functions)).toHaveLength(1)
  })

  it('are none if the definition has all rules', () => {
    expect(shop([immutable('.spec.name'), unique('.spec.tags')]).policies([])).toEqual([])
  })
})

it('the fields with checks in code are known, since only a run makes them', () => {
  const checked = shop([], {
    spec: z.object({ a: z.string().refine(() => true), b: z.array(z.object({ c: z.int32() }).refine(() => true)) }),
  })
  expect(checked.codeChecks).toEqual(['spec.a', 'spec.b[]'])
})
