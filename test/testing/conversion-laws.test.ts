import { describe, expect, it } from 'vitest'
import { mapped, moved, type Resource, resource, scaled, wrapped, z } from '#sdk'
import { conversionLawsOf } from '#testing'
import { Values } from '../../sdk/testing/values.ts'

const names = { group: 'example.com', version: 'v1', kind: 'Page', plural: 'pages' } as const
const status = z.object({ ready: z.int32() })
const spec = z.object({
  http: z.object({ url: z.string(), tls: z.string().optional() }),
  replicas: z.int32().min(1).max(9).optional(),
  mode: z.enum(['Fast', 'Safe']).optional(),
  ports: z
    .array(z.object({ port: z.int32(), name: z.string().optional() }))
    .max(3)
    .optional(),
})
const byName = { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] }
const mounts = z.array(z.object({ name: z.string(), mode: z.string().optional() }))
const old = z.object({
  url: z.string(),
  replicas: z.int32().min(1).max(9).optional(),
  mode: z.enum(['Fast', 'Safe']).optional(),
  ports: z
    .array(z.object({ port: z.int32() }))
    .max(3)
    .optional(),
})
type Old = {
  url?: string | undefined
  replicas?: number | undefined
  mode?: 'Fast' | 'Safe' | undefined
  ports?: { port?: number | undefined }[] | undefined
}
type Now = Omit<Old, 'url'> & { http?: { url?: string | undefined; tls?: string | undefined } | undefined }
type Way<From, To> = (from: { spec?: From; status?: object }) => { spec?: To; status?: object }

const up: Way<Old, Now> = ({ spec: { url, ...others } = {}, ...rest }) => ({
  ...rest,
  spec: { ...others, ...(url !== undefined && { http: { url } }) },
})
const down: Way<Now, Old> = ({ spec: { http, ...others } = {}, ...rest }) => ({
  ...rest,
  spec: { ...others, ...(http?.url !== undefined && { url: http.url }) },
})
const pages = (pair: { up?: Way<Old, Now>; down?: Way<Now, Old> }, olds: z.ZodObject = old): Resource =>
  resource({
    ...names,
    spec,
    status,
    served: [{ version: 'v1beta1', spec: olds, convert: { up, down, ...pair } }],
  })

/** The laws that do not hold, with their messages. */
async function broken(page: Resource, options = {}): Promise<Record<string, string>> {
  const found: Record<string, string> = {}
  for (const [law, holds] of conversionLawsOf(page, { runs: 100, ...options }))
    await holds().catch((error: unknown) => void (found[law] = (error as Error).message))
  return found
}

describe('the laws of a conversion', () => {
  it.each<[string, Resource]>([
    ['a pair of functions', pages({})],
    [
      'steps',
      resource({
        ...names,
        spec: spec.extend({ ms: z.int32().min(0).max(9000), cron: z.string() }),
        status,
        served: [
          {
            version: 'v1beta1',
            spec: old.extend({ seconds: z.int32().min(0).max(9), schedule: z.string() }),
            convert: [
              moved('.spec.url', '.spec.http.url'),
              scaled('.spec.seconds', '.spec.ms', 1000),
              mapped(
                '.spec.schedule',
                '.spec.cron',
                (text: string) => text.replace('@daily', '0 0 * * *'),
                (cron: string) => cron,
              ),
            ],
          },
        ],
      }),
    ],
    [
      'a version that shows less: objects, elements and fields of elements',
      resource({
        ...names,
        spec: z.object({
          http: z.object({ url: z.string().optional(), tls: z.string().optional() }).optional(),
          ports: z.array(z.int32()).optional(),
          list: z.array(z.object({ port: z.int32(), name: z.string().optional() })).optional(),
          mounts: mounts.meta(byName).optional(),
        }),
        status,
        served: [
          {
            version: 'v1beta1',
            spec: z.object({
              url: z.string().optional(),
              port: z.int32().optional(),
              list: z.array(z.object({ port: z.int32() })).optional(),
              mounts: z
                .array(z.object({ name: z.string() }))
                .meta(byName)
                .optional(),
            }),
            convert: [moved('.spec.url', '.spec.http.url'), wrapped('.spec.port', '.spec.ports')],
          },
        ],
      }),
    ],
  ])('hold for %s', async (_, page) => {
    expect(await broken(page)).toEqual({})
  })

  it('edit as clients do: a field comes, changes or goes, an element comes, changes, moves or goes', () => {
    const schema = {
      type: 'object',
      properties: { a: { type: 'boolean' }, list: { type: 'array', items: { type: 'boolean' } } },
    } as const
    const editsOf = (value: object) =>
      new Set(Array.from({ length: 200 }, (_, seed) => JSON.stringify(new Values(seed).edited(value, schema))))
    expect(editsOf({ a: true })).toEqual(
      new Set(['{}', '{"a":false}', '{"a":true}', ...[...editsOf({ a: true })].filter((one) => one.includes('list'))]),
    )
    for (const list of ['[true,false,false]', '[false]', '[true]', '[false,true]', '[false,false]', '[true,true]'])
      expect(editsOf({ a: true, list: [true, false] })).toContain(`{"a":true,"list":${list}}`)
  })

  const lost = 'v1beta1: a field that both versions could hold is not lost'
  const total = 'v1beta1: each object converts, also one with absent, null or wrong fields'
  const absent = 'v1beta1: what is absent stays absent'
  const valid = 'v1beta1: what is valid stays valid'
  const same = 'v1beta1: an object gives the same at any time, in any order'

  it.each<[string, Resource, string, string[]]>([
    [
      'loses a field on the way up',
      pages({ up: (body) => ({ ...up(body), spec: { ...up(body).spec, mode: undefined } }) }),
      lost,
      [
        'resource Page: v1beta1 .spec.mode is lost in v1',
        'both versions have it',
        'example.com/v1beta1 {"spec":{"url":"',
        '"mode":"',
      ],
    ],
    [
      'loses a field on the way down',
      pages({ down: (body) => ({ ...down(body), spec: { ...down(body).spec, replicas: undefined } }) }),
      lost,
      ['.spec.replicas is lost in'],
    ],
    [
      'loses a field of the elements of a list',
      pages({ up: (body) => ({ ...up(body), spec: { ...up(body).spec, ports: body.spec?.ports?.map(() => ({})) } }) }),
      lost,
      ['v1beta1 .spec.ports[].port is lost in v1'],
    ],
    ['loses the status', pages({ up: ({ spec: one }) => up({ spec: one }) }), lost, ['v1beta1 .status.']],
    [
      'throws for an absent field',
      pages({ up: (body) => up({ ...body, spec: { ...body.spec, url: (body.spec as { url: string }).url.trim() } }) }),
      total,
      ['v1beta1 does not become v1: ', 'up of its conversion fails', 'example.com/v1beta1 {"spec":{}}'],
    ],
    [
      'throws for one value',
      pages({
        down: (body) => {
          if (body.spec?.mode === 'Safe') throw new Error('not yet')
          return down(body)
        },
      }),
      total,
      ['down of its conversion fails: not yet', '{"spec":{"mode":"Safe"}}'],
    ],
    [
      'invents a value',
      pages({ up: (body) => ({ ...up(body), spec: { ...up(body).spec, replicas: body.spec?.replicas ?? 1 } }) }),
      absent,
      ['v1 .spec.replicas is 1, and v1beta1 has no value at all', 'example.com/v1beta1 {"spec":{"url":"'],
    ],
    [
      'makes an invalid object',
      pages({ up: (body) => ({ ...up(body), spec: { ...up(body).spec, replicas: (body.spec?.replicas ?? 0) * 2 } }) }),
      valid,
      ['v1beta1 is valid, and v1 is not: .spec.replicas: Too'],
    ],
    [
      'reads the clock',
      pages({ up: (body) => ({ ...up(body), spec: { ...up(body).spec, http: { url: String(Date.now()) } } }) }),
      same,
      ['v1 differs between two conversions of one object', 'spec.http.url'],
    ],
  ])('find a conversion that %s', async (_, page, law, texts) => {
    const message = (await broken(page))[law]
    for (const text of texts) expect(message).toContain(text)
  })

  it('take a field as kept that the other version cannot hold, and is named', async () => {
    const legacy = pages({}, old.extend({ legacy: z.string().optional() }))
    expect(Object.keys(await broken(legacy))).toEqual([lost])
    expect(await broken(legacy, { kept: ['.spec.legacy'] })).toEqual({})
  })

  it('take values of examples for patterns, and ask for them', async () => {
    const coded = z.object({ code: z.string().regex(/^#{7}$/) })
    const page = resource({
      ...names,
      spec: coded,
      status,
      served: [{ version: 'v1beta1', spec: coded, convert: { up: (body) => body, down: (body) => body as never } }],
    })
    expect((await broken(page))[valid]).toContain('no valid object of Page v1beta1 is found: .spec.code')
    const example = page.of({ metadata: { name: 'a' }, spec: { code: '#######' } })
    expect(await broken(page, { examples: [example] })).toEqual({})
  })

  it('give the same objects for the same seed', async () => {
    const page = pages({ up: () => ({}) })
    const [first, second, third] = [
      await broken(page, { seed: 3 }),
      await broken(page, { seed: 3 }),
      await broken(page, { seed: 4 }),
    ]
    expect(second).toEqual(first)
    expect(third).not.toEqual(first)
  })

  it('need a conversion', () => {
    const page = resource({ ...names, spec, status })
    expect(() => conversionLawsOf(page)).toThrow('resource Page has no version with "convert"')
  })
})
