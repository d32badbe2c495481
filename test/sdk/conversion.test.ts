import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import {
  breakingChanges,
  mapped,
  moved,
  reconciler,
  resource,
  type ServedVersion,
  scaled,
  toInvoke,
  wrapped,
  z,
} from '#sdk'
import { keptOf, readKept, restored, writeKept } from '../../sdk/kept.ts'

const names = { group: 'example.com', version: 'v1', kind: 'Page', plural: 'pages' } as const
const KEPT = 'fairlead.dev/kept'
const PARTIAL = 'fairlead.dev/partial'

const port = z.object({ port: z.int32(), protocol: z.string().optional() })
const byName = { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] }
const spec = z.object({
  http: z.object({ url: z.string(), tls: z.string().optional() }).optional(),
  ports: z.array(z.int32()).optional(),
  ms: z.int().optional(),
  cron: z.string().optional(),
  replicas: z.int32().nullable().optional(),
  list: z.array(port).optional(),
  mounts: z
    .array(z.object({ name: z.string(), path: z.string().optional(), mode: z.string().optional() }))
    .meta(byName)
    .optional(),
  any: z.looseObject({}).optional(),
})
const old = z.object({
  url: z.string().optional(),
  port: z.int32().optional(),
  seconds: z.int().optional(),
  schedule: z.string().optional(),
  replicas: z.int32().nullable().optional(),
  list: z.array(z.object({ port: z.int32() })).optional(),
  mounts: z
    .array(z.object({ name: z.string(), path: z.string().optional() }))
    .meta(byName)
    .optional(),
  any: z.looseObject({}).optional(),
  legacy: z.string().optional(),
})
const shorthands: Record<string, string> = { '@daily': '0 0 * * *' }
const Page = resource({
  ...names,
  spec,
  status: z.object({ ready: z.int32(), phase: z.string().optional() }),
  served: [
    {
      version: 'v1beta1',
      spec: old,
      status: z.object({ ready: z.int32() }),
      convert: [
        moved('.spec.url', '.spec.http.url'),
        wrapped('.spec.port', '.spec.ports'),
        scaled('.spec.seconds', '.spec.ms', 1000),
        mapped(
          '.spec.schedule',
          '.spec.cron',
          (text: string) => shorthands[text] ?? text,
          (cron: string) => cron,
        ),
      ],
    },
    {
      version: 'v1alpha1',
      spec: z.object({ note: z.string().optional() }),
      convert: { up: () => ({}), down: () => ({}) },
    },
  ],
})
const page = (version: string, body: object, annotations?: Record<string, string>): KubeObject => ({
  apiVersion: `example.com/${version}`,
  kind: 'Page',
  metadata: { name: 'a', namespace: 'x', ...(annotations && { annotations }) },
  ...body,
})
const shown = (body: object) => Page.convert(page('v1', body), 'v1beta1')
const bodyOf = ({ spec: one, status }: KubeObject) => ({
  ...(one !== undefined && { spec: one }),
  ...(status !== undefined && { status }),
})
const edited = (object: KubeObject, change: object): KubeObject => ({
  ...object,
  spec: { ...(object.spec as object), ...change },
})
const written = (object: KubeObject, before?: KubeObject) => bodyOf(Page.convert(object, 'v1', before))

describe('steps', () => {
  it.each([
    ['a moved field', { url: 'a' }, { http: { url: 'a' } }],
    ['a wrapped value', { port: 80 }, { ports: [80] }],
    ['a scaled number', { seconds: 2 }, { ms: 2000 }],
    ['a mapped text', { schedule: '* * * * *' }, { cron: '* * * * *' }],
    ['a field without a step', { replicas: null }, { replicas: null }],
    ['an empty object, which is not an absent one', { any: {} }, { any: {} }],
    ['nothing', {}, {}],
  ])('convert %s in both directions, and keep nothing', (_, before, after) => {
    const up = Page.convert(page('v1beta1', { spec: before }), 'v1')
    expect(up).toEqual(page('v1', { spec: after }))
    expect(Page.convert(up, 'v1beta1')).toEqual(page('v1beta1', { spec: before }))
  })

  it('lose nothing where code of an author changes what it is given', () => {
    const list = z.object({ list: z.array(z.int32()), tls: z.string().optional() })
    const reversed = (one: number[]) => one.reverse()
    const pair = {
      up: (body: { spec?: { list?: number[] } }) => ({ spec: { list: reversed(body.spec?.list ?? []) } }),
      down: (body: { spec?: { list?: number[]; tls?: string } }) => {
        delete body.spec?.tls
        return { spec: { list: reversed(body.spec?.list ?? []) } }
      },
    }
    const ways = { steps: [mapped('.spec.list', '.spec.list', reversed, reversed)], pair }
    for (const convert of Object.values(ways)) {
      const old = { version: 'v1beta1', spec: z.object({ list: z.array(z.int32()) }), convert: convert as never }
      const Lists = resource({ ...names, spec: list, status: z.object({}), served: [old] })
      const given = page('v1', { spec: { list: [3, 1, 2], tls: 't' } })
      const there = Lists.convert(given, 'v1beta1')
      expect(there.spec).toEqual({ list: [2, 1, 3] })
      expect(Lists.convert(there, 'v1')).toEqual(given)
    }
  })

  it('round a small number to 0, as JSON has it, and change nothing of the given object', () => {
    const given = page('v1', { spec: { ms: -400, http: { url: 'a' } } })
    const before = structuredClone(given)
    const there = Page.convert(given, 'v1beta1')
    expect(there.spec).toEqual({ url: 'a', seconds: 0 })
    expect(Page.convert(there, 'v1')).toEqual(before)
    expect(given).toEqual(before)
  })

  it('are refused by the compiler and by the declaration on a path that does not exist', () => {
    const declare = (convert: never) => () =>
      resource({ ...names, spec, status: z.object({}), served: [{ version: 'v1beta1', spec: old, convert }] })
    // @ts-expect-error v1beta1 has no such field
    const from: NonNullable<ServedVersion<typeof old, typeof spec>['convert']> = [moved('.spec.urx', '.spec.http.url')]
    // @ts-expect-error v1 has no such field
    const to: NonNullable<ServedVersion<typeof old, typeof spec>['convert']> = [moved('.spec.url', '.spec.http.urx')]
    expect(declare(from as never)).toThrow(
      'resource Page: v1beta1: moved .spec.urx .spec.http.url: the schema has no field',
    )
    expect(declare(to as never)).toThrow('moved .spec.url .spec.http.urx: the schema has no field spec.http.urx')
  })

  it.each([
    [[moved('.spec.url', '.spec.ms')], 'it is string and becomes integer: use mapped()'],
    [[wrapped('.spec.url', '.spec.ports')], 'spec.ports is no list of string'],
    [[scaled('.spec.url', '.spec.ms', 2)], 'it takes two numbers'],
    [[moved('.spec.url', '.spec.http.url'), moved('.spec.url', '.spec.cron')], 'are about the same field'],
    [
      [moved('.spec.legacy', '.spec.http.url'), mapped('.spec.url', '.spec.http', String, Object)],
      'are about the same field',
    ],
    [
      [mapped('.spec.port', '.spec.replicas', Number, Number)],
      'has a field spec.replicas too: it needs a step of its own',
    ],
    [{ up: () => ({}) }, 'give steps, such as moved(), or a pair of functions: { up, down }'],
  ])('that do not fit are refused: %j', (convert, message) => {
    const served = [{ version: 'v1beta1', spec: old, convert: convert as never }]
    expect(() => resource({ ...names, spec, status: z.object({}), served })).toThrow(message)
  })

  it('refuse elements of lists, metadata, another part, and a factor that is no factor', () => {
    expect(() => moved('.spec.list[].port', '.spec.ms')).toThrow('no elements of lists or records')
    expect(() => moved('.metadata.name', '.spec.ms')).toThrow('it takes fields of spec and status')
    expect(() => moved('.status.ms', '.spec.ms')).toThrow('who may write the status could write the spec')
    expect(() => scaled('.spec.seconds', '.spec.ms', 0)).toThrow('the factor is 0')
  })
})

describe('what a version cannot hold', () => {
  const json = fc.jsonValue({ depthSize: 'small', noUnicodeString: false })
  const schemas = [
    undefined,
    { type: 'array', items: {}, 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['a'] },
  ]
  const keyed = fc.array(fc.record({ a: fc.constantFrom('x', 'y', 'z', 1), b: json }, { requiredKeys: ['a'] }), {
    maxLength: 4,
  })
  const plain = (value: unknown) => JSON.parse(JSON.stringify(value)) as unknown

  it('comes back, for any two values', () => {
    fc.assert(
      fc.property(fc.oneof(json, keyed), fc.oneof(json, keyed), fc.constantFrom(...schemas), (one, other, schema) => {
        const [base, value] = [{ spec: { f: plain(one) } }, { spec: { f: plain(other) } }]
        const properties = { spec: { properties: { f: schema ?? {} } } }
        const text = writeKept(new Map([['v1', keptOf(base, value, { properties })]]))
        expect(restored(base, readKept(text).get('v1') ?? [], { properties })).toEqual(value)
      }),
      { numRuns: 2000 },
    )
  })

  it('is in an annotation of the version that cannot hold it, and nothing else of metadata changes', () => {
    const object = page('v1', { spec: { http: { url: 'a', tls: 'b' } } }, { mine: 'x' })
    const metadata = {
      ...object.metadata,
      labels: { a: 'b' },
      managedFields: [{ manager: 'm' }],
      finalizers: ['f'],
      generation: 3,
    }
    const there = Page.convert({ ...object, metadata }, 'v1beta1')
    expect(there.metadata).toEqual({
      ...metadata,
      annotations: { mine: 'x', [KEPT]: '[["v1",[{"at":["spec","http","tls"],"value":"b"}]]]' },
    })
    expect(Page.convert(there, 'v1')).toEqual({ ...object, metadata })
  })

  it.each<[string, object, object, object]>([
    ['a field beside it', { http: { url: 'a', tls: 'b' } }, { url: 'c' }, { http: { url: 'c', tls: 'b' } }],
    ['a field beside it that goes', { http: { url: 'a', tls: 'b' } }, { url: undefined }, { http: { tls: 'b' } }],
    ['the first of several elements', { ports: [80, 443] }, { port: 81 }, { ports: [81, 443] }],
    ['the first of several elements, which goes', { ports: [80, 443] }, { port: undefined }, { ports: [443] }],
    ['nothing, so a rounded number stays', { ms: 1500 }, { url: 'a' }, { ms: 1500, http: { url: 'a' } }],
    ['the rounded number', { ms: 1500 }, { seconds: 3 }, { ms: 3000 }],
    [
      'one element of a list without keys',
      {
        list: [
          { port: 1, protocol: 'A' },
          { port: 2, protocol: 'B' },
        ],
      },
      { list: [{ port: 1 }, { port: 3 }] },
      { list: [{ port: 1, protocol: 'A' }, { port: 3 }] },
    ],
    [
      'the list, of which one element goes and one comes',
      {
        list: [
          { port: 1, protocol: 'A' },
          { port: 2, protocol: 'B' },
        ],
      },
      { list: [{ port: 3 }, { port: 2 }] },
      { list: [{ port: 3 }, { port: 2, protocol: 'B' }] },
    ],
    [
      'the list, of which one of two elements goes that the version shows alike',
      {
        list: [
          { port: 1, protocol: 'A' },
          { port: 1, protocol: 'B' },
        ],
      },
      { list: [{ port: 1 }] },
      { list: [{ port: 1, protocol: 'A' }] },
    ],
    [
      'an element of a list with keys, and their order',
      {
        mounts: [
          { name: 'a', path: '/a', mode: 'r' },
          { name: 'b', mode: 'w' },
        ],
      },
      { mounts: [{ name: 'c' }, { name: 'b', path: '/x' }, { name: 'a', path: '/y' }] },
      { mounts: [{ name: 'c' }, { name: 'b', path: '/x', mode: 'w' }, { name: 'a', path: '/y', mode: 'r' }] },
    ],
  ])('stays while an old client edits %s', (_, before, change, after) => {
    const object = shown({ spec: before })
    const edit = edited(object, change)
    const { annotations: __, ...metadata } = edit.metadata
    expect(written(edit)).toEqual({ spec: after })
    expect(written({ ...edit, metadata }, object)).toEqual({ spec: after })
  })

  it('stays in the stored object while a new client edits it', () => {
    const stored = Page.convert(page('v1beta1', { spec: { legacy: 'x', seconds: 1, schedule: '@daily' } }), 'v1')
    expect(bodyOf(stored)).toEqual({ spec: { ms: 1000, cron: '0 0 * * *' } })
    expect(bodyOf(Page.convert(edited(stored, { ms: 2000 }), 'v1beta1'))).toEqual({
      spec: { legacy: 'x', seconds: 2, schedule: '@daily' },
    })
    expect(bodyOf(Page.convert(edited(stored, { cron: '1 * * * *' }), 'v1beta1'))).toMatchObject({
      spec: { schedule: '1 * * * *' },
    })
  })

  it('is kept for each version apart, also on the way through another one', () => {
    const alpha = page('v1alpha1', { spec: { note: 'n' } })
    const beta = Page.convert(alpha, 'v1beta1')
    expect(bodyOf(beta)).toEqual({ spec: {} })
    const back = Page.convert(edited(beta, { legacy: 'x' }), 'v1alpha1')
    expect(bodyOf(back)).toEqual({ spec: { note: 'n' } })
    expect(bodyOf(Page.convert(back, 'v1beta1'))).toEqual({ spec: { legacy: 'x' } })
  })

  it('is the same after a second round, and the conversion changes nothing that it is given', () => {
    const object = Object.freeze(
      page('v1', { spec: Object.freeze({ ms: 1500, http: Object.freeze({ url: 'a', tls: 'b' }) }) }),
    )
    const once = Page.convert(object, 'v1beta1')
    expect(Page.convert(Page.convert(once, 'v1'), 'v1beta1')).toEqual(once)
    expect(Page.convert(Page.convert(once, 'v1'), 'v1')).toEqual(object)
  })

  it('is not put into a part of an object, as the API server converts them for managedFields', () => {
    const { annotations } = shown({ spec: { http: { url: 'a', tls: 'b' } }, status: { phase: 'x' } }).metadata
    expect(written(page('v1beta1', {}, annotations))).toEqual({})
    expect(written(page('v1beta1', { status: { ready: 1 } }, annotations))).toEqual({
      status: { ready: 1, phase: 'x' },
    })
  })
})

describe('an annotation that somebody else has written', () => {
  const kept = (entries: unknown) => JSON.stringify([['v1', entries]])
  it.each([
    ['a prototype', kept([{ at: ['spec', '__proto__', 'polluted'], value: 1 }])],
    ['a constructor', kept([{ at: ['spec', 'constructor', 'prototype', 'polluted'], value: 1 }])],
    ['an element without keys', kept([{ at: ['spec', 'ports', {}], base: 80, value: 1 }])],
    ['a text where a list is', kept([{ at: ['spec', 'url', { a: 1 }], value: 1 }])],
  ])('does no harm: %s', (_, text) => {
    const object = page('v1beta1', { spec: { url: 'a' } }, { [KEPT]: text, toString: 'mine' })
    const stored = Page.convert(object, 'v1')
    expect(stored.metadata).toMatchObject({ name: 'a', annotations: { toString: 'mine' } })
    expect(stored.spec).toMatchObject({ http: { url: 'a' } })
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined()
    expect(Object.getPrototypeOf(stored.spec)).toBe(Object.prototype)
    const read = Page.convert({ ...stored, metadata: object.metadata }, 'v1beta1')
    expect(read.spec).toMatchObject({ url: 'a' })
  })

  it.each([
    ['no JSON', '{'],
    ['only its beginning', kept([{ at: ['spec', 'http', 'tls'], value: 'b' }]).slice(0, -4)],
    ['another form', '{"v1":[]}'],
    ['a form of a later release', kept([{ at: ['spec', 'http', 'tls'], values: ['b'] }])],
    ['deep lists', '['.repeat(100_000)],
    ['metadata', kept([{ at: ['metadata', 'name'], value: 'b' }])],
    ['the object itself', kept([{ at: [], value: 'b' }])],
  ])('and that has %s refuses the write rather than lose what it keeps, and shows the object in part', (_, text) => {
    const message = 'its annotation fairlead.dev/kept is damaged: what it keeps would be lost'
    const object = page('v1beta1', { spec: { url: 'a' } }, { [KEPT]: text })
    expect(() => Page.convert(object, 'v1')).toThrow(message)
    const stored = page('v1', { spec: { http: { url: 'a' } } }, { [KEPT]: text })
    expect(Page.convert(stored, 'v1beta1').metadata.annotations).toEqual({ [PARTIAL]: message })
  })

  it('that is nested too deep refuses the write, and shows the object in part', () => {
    const deep = kept([{ at: ['spec', 'x'], value: 0 }]).replace('0}', `${'['.repeat(50_000)}${']'.repeat(50_000)}}`)
    const object = page('v1beta1', { spec: { url: 'a' } }, { [KEPT]: deep })
    expect(() => Page.convert(object, 'v1')).toThrow('a value is nested too deep')
    const stored = page('v1', { spec: {} }, { [KEPT]: deep.replace('"v1"', '"v1beta1"') })
    expect(Page.convert(stored, 'v1beta1')).toEqual(
      page('v1beta1', { spec: {} }, { [PARTIAL]: 'a value is nested too deep' }),
    )
  })

  it('does not replace what is kept: that of the object before the write counts', () => {
    const before = shown({ spec: { http: { url: 'a', tls: 'b' } } })
    const forged = {
      ...before,
      metadata: { ...before.metadata, annotations: { [KEPT]: kept([{ at: ['spec', 'ms'], value: 9 }]) } },
    }
    expect(written(forged, before)).toEqual({ spec: { http: { url: 'a', tls: 'b' } } })
    expect(Page.convert(forged, 'v1beta1', before)).toEqual(before)
  })
})

describe('what is too large for the annotations', () => {
  const large = { spec: { http: { url: 'a', tls: 'x'.repeat(300_000) } } }

  it('is left out of what a client reads, which says so, and cannot write it', () => {
    const object = shown(large)
    expect(bodyOf(object)).toEqual({ spec: { url: 'a' } })
    expect(object.metadata.annotations).toEqual({
      [PARTIAL]: expect.stringMatching(
        /^with what another version cannot hold its annotations have 300\d\d\d bytes, and the API server takes 262144$/,
      ),
    })
    for (const before of [undefined, object])
      expect(() => written(edited(before ? page('v1beta1', { spec: {} }) : object, { url: 'b' }), before)).toThrow(
        'Page x/a of example.com/v1beta1: it is shown in part, and cannot be written in this version: use example.com/v1',
      )
  })

  it('counts with all annotations of the object', () => {
    const annotations = { mine: 'x'.repeat(262_144 - 4 - KEPT.length - 58) }
    expect(
      Page.convert(page('v1', { spec: { http: { tls: 'b' } } }, annotations), 'v1beta1').metadata.annotations,
    ).not.toHaveProperty(PARTIAL)
    annotations.mine += 'xx'.repeat(20)
    expect(
      Page.convert(page('v1', { spec: { http: { tls: 'b' } } }, annotations), 'v1beta1').metadata.annotations,
    ).toHaveProperty(PARTIAL)
  })

  it('is an error when it would have to be stored', () => {
    expect(() => written(page('v1beta1', { spec: { legacy: 'x'.repeat(300_000) } }))).toThrow(
      'and the API server takes 262144',
    )
  })
})

describe('a conversion that fails', () => {
  const fails = (): never => {
    throw new Error('no such text')
  }
  const Broken = resource({
    ...names,
    spec,
    status: z.object({}),
    served: [
      { version: 'v1beta1', spec: old, convert: [mapped('.spec.schedule', '.spec.cron', fails, fails)] },
      { version: 'v1alpha1', spec: old, convert: { up: fails, down: fails } },
      {
        version: 'v1alpha2',
        spec: old,
        convert: { up: () => ({ spec: { ms: 1n as never } }), down: (() => 'x') as never },
      },
    ],
  })

  it.each([
    ['v1beta1', 'mapped .spec.schedule .spec.cron: no such text', { replicas: 1 }],
    ['v1alpha1', 'down of its conversion fails: no such text', {}],
    ['v1alpha2', 'down of its conversion fails: it is no object', {}],
  ])('in %s shows the object in part, and never stops a list', (version, message, left) => {
    const object = Broken.convert(page('v1', { spec: { cron: '1', replicas: 1 } }), version)
    expect(object).toEqual(page(version, { spec: left }, { [PARTIAL]: message }))
    expect(() => Broken.convert(object, 'v1')).toThrow('it is shown in part')
  })

  it.each([
    ['v1beta1', 'mapped .spec.schedule .spec.cron: no such text'],
    ['v1alpha1', 'up of its conversion fails: no such text'],
    ['v1alpha2', 'up of its conversion fails: up.spec.ms is a bigint, which is not JSON'],
  ])('in %s is an error for a write, and for a function', (version, message) => {
    const object = page(version, { spec: { schedule: '1' } })
    expect(() => Broken.convert(object, 'v1')).toThrow(`Page x/a of example.com/${version}: ${message}`)
    expect(() => Broken.parse(object)).toThrow(expect.objectContaining({ reason: 'InvalidObject' }))
  })

  it.each([2 ** 53, -(2 ** 60)])(
    'shows an object in part whose number %d JavaScript may have rounded, and does not write it',
    (ms) => {
      const object = Page.convert(page('v1', { spec: { replicas: 1, ms } }), 'v1beta1')
      expect(object.metadata.annotations).toEqual({
        [PARTIAL]: `the number ${ms} is larger than JavaScript can hold exactly`,
      })
      expect(() => Page.convert(page('v1beta1', { spec: { any: { ms } } }), 'v1')).toThrow(
        'is larger than JavaScript can hold exactly',
      )
    },
  )

  it('does not fail for an element that a step cannot show', () => {
    const object = page('v1', { spec: { ports: ['x', 80] } })
    const there = Page.convert(object, 'v1beta1')
    expect(bodyOf(there)).toEqual({ spec: {} })
    expect(Page.convert(there, 'v1')).toEqual(object)
  })

  it('does not store a number that it could not read again', () => {
    const Scaled = resource({
      ...names,
      spec: z.object({ ms: z.number().optional() }),
      status: z.object({}),
      served: [
        {
          version: 'v1beta1',
          spec: z.object({ seconds: z.number().optional() }),
          convert: [scaled('.spec.seconds', '.spec.ms', 1000)],
        },
      ],
    })
    expect(() => Scaled.convert(page('v1beta1', { spec: { seconds: 2 ** 50 } }), 'v1')).toThrow(
      'the number 1125899906842624000 is larger than JavaScript can hold exactly',
    )
  })

  it('names an object of another kind, and a version that does not exist', () => {
    expect(() => Page.convert({ ...page('v1', {}), kind: 'Other' }, 'v1beta1')).toThrow('it is no Page of example.com')
    expect(() => Page.convert(page('v3', {}), 'v1')).toThrow('in a version that is declared: v1, v1beta1, v1alpha1')
    expect(() => Page.convert(page('v1', {}), 'v3')).toThrow('Page has no version v3')
    expect(() => Page.convert(page('v1', {}), 'v1', page('v1beta1', {}))).toThrow('give it in the same version')
  })
})

describe('a function', () => {
  it('decides on the stored version, whatever version its object has', async () => {
    const seen: unknown[] = []
    const pages = reconciler({
      name: 'pages',
      for: Page,
      reconcile: ({ object }) => {
        seen.push(object.apiVersion, object.spec)
        return {}
      },
    })
    const input = { owned: {}, related: {}, attempt: 0, now: '2030-01-01T00:00:00Z', finalizing: false }
    const log = { debug() {}, info() {}, warn() {}, error() {} }
    const object = shown({ spec: { http: { url: 'a', tls: 'b' }, ms: 1500 } })
    await toInvoke(pages)({ ...input, object }, { log, signal: AbortSignal.timeout(1000) })
    expect(seen).toEqual(['example.com/v1', { http: { url: 'a', tls: 'b' }, ms: 1500 }])
  })
})

describe('a definition with a conversion', () => {
  const webhook = { caBundle: 'Zm9v', service: { namespace: 'x', name: 'y' } }

  it('has the webhook, and each version its own schema', () => {
    const { conversion, versions } = Page.crd(webhook).spec
    expect(conversion).toEqual({
      strategy: 'Webhook',
      webhook: { clientConfig: webhook, conversionReviewVersions: ['v1'] },
    })
    expect(versions.map(({ name, storage }) => [name, storage])).toEqual([
      ['v1', true],
      ['v1beta1', false],
      ['v1alpha1', false],
    ])
    expect(versions[1]?.schema.openAPIV3Schema.properties?.['spec']?.properties).toHaveProperty('url')
  })

  it('needs a webhook: without one, the API server would prune what it does not convert', () => {
    expect(() => Page.crd()).toThrow(
      'resource Page: v1beta1 has a conversion, for which the API server calls a webhook',
    )
  })

  it('has a scale in the versions with its fields', () => {
    const served = [{ version: 'v1beta1', spec: old, convert: [moved('.spec.url', '.spec.http.url')] }] as const
    const made = (path: `.spec.${string}`) =>
      resource({
        ...names,
        spec,
        status: z.object({ ready: z.int32() }),
        served,
        scale: { spec: path, status: '.status.ready' },
      })
    const scaledIn = (path: `.spec.${string}`) =>
      made(path)
        .crd(webhook)
        .spec.versions.filter(({ subresources }) => subresources.scale)
        .map(({ name }) => name)
    expect(scaledIn('.spec.ms')).toEqual(['v1'])
    expect(scaledIn('.spec.replicas')).toEqual(['v1', 'v1beta1'])
  })

  it('may not have rules that its other version would not check', () => {
    const served = [{ version: 'v1beta1', spec: old, convert: [moved('.spec.url', '.spec.http.url')] }] as const
    const made = (more: object) => resource({ ...names, spec, status: z.object({}), served, ...more }).crd(webhook)
    const validations = [{ rule: 'self.spec.ms > 0' }]
    expect(() => made({ validations })).toThrow('v1beta1 needs "validations"')
    expect(() => made({ validations, served: [{ ...served[0], validations: [] }] })).not.toThrow()
  })

  it('may move what an older one stores: its objects are converted', () => {
    const before = resource({ ...names, version: 'v1beta1', spec: old, status: z.object({ ready: z.int32() }) }).crd()
    expect(breakingChanges(before, Page.crd(webhook))).toEqual([])
    const { conversion: _, ...others } = Page.crd(webhook).spec
    expect(breakingChanges(Page.crd(webhook), { ...Page.crd(webhook), spec: others })).toEqual([
      'its objects would not be converted any more: the API server would prune what v1 does not have',
    ])
    // So the API server shows one without a conversion.
    const unconverted = { ...Page.crd(webhook), spec: { ...others, conversion: { strategy: 'None' as const } } }
    expect(breakingChanges(unconverted, { ...Page.crd(webhook), spec: others })).toEqual([])
  })
})
