/** The process that the API server calls, over real TLS: protocol, limits, certificates and its end. */
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { Agent, request } from 'node:https'
import { connect as connectPlain, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { connect, type TLSSocket } from 'node:tls'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import type { KubeObject } from '#contracts'
import { issueFrom, newAuthority } from '#pki'
import type { ValidationReport } from '#process/webhooks/admission-review'
import type { ConversionReport } from '#process/webhooks/conversion-review'
import { unservedBy } from '#process/webhooks/probe'
import { type Refusal, serveWebhooks, type WebhookServer } from '#process/webhooks/server'
import { moved, resource, z } from '#sdk'
import { silent as log } from '../support/silent.ts'
import { until } from '../support/wait.ts'

/** Some regular expressions do not come back on it. */
const ENDLESS = `${'a'.repeat(60)}b`
const Page = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Page',
  plural: 'pages',
  spec: z.object({ http: z.object({ url: z.string() }), note: z.string().optional() }),
  status: z.object({}),
  served: [
    {
      version: 'v1beta1',
      spec: z.object({ url: z.string(), note: z.string().optional() }),
      convert: {
        up: ({ spec }) => {
          if (spec?.url === 'broken') throw new Error('the URL is broken')
          if (spec?.url === 'starved') Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500)
          if (/^(a+)+$/.test(spec?.url ?? '')) throw new Error('the URL has one letter')
          return { spec: { http: { url: spec?.url }, note: spec?.note } }
        },
        down: ({ spec }) => {
          if (/^(a+)+$/.test(spec?.note ?? '')) throw new Error('the note has one letter')
          return { spec: { url: spec?.http?.url, note: spec?.note } }
        },
      },
    },
  ],
})
const Other = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Page',
  plural: 'pages',
  spec: z.object({ other: z.string() }),
  status: z.object({}),
})
const page = (version: string, name: string, spec: object) => ({
  apiVersion: `example.com/${version}`,
  kind: 'Page',
  metadata: { name, namespace: 'default', uid: `uid-${name}`, labels: { a: 'b' }, managedFields: [{ manager: 'x' }] },
  spec,
})
const review = (desired: string, objects: unknown[], uid = 'u1') => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'ConversionReview',
  request: { uid, desiredAPIVersion: `example.com/${desired}`, objects },
})

const authority = newAuthority({ cn: 'test' }, { now: new Date(), days: 1 })
let dir: string
let server: WebhookServer
let reports: ConversionReport[]
let validations: ValidationReport[]
let refusals: Refusal[]
let logged: string[]
const agent = new Agent({ ca: authority.certificate, keepAlive: true })

async function certify(cn: string): Promise<void> {
  const leaf = issueFrom(authority, { subject: { cn }, sans: ['127.0.0.1'] }, { now: new Date(), days: 1 })
  await writeFile(join(dir, 'tls.crt'), leaf.certificate)
  await writeFile(join(dir, 'tls.key'), leaf.privateKey.export({ type: 'pkcs8', format: 'pem' }))
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-webhooks-'))
})
afterAll(() => rm(dir, { recursive: true, force: true }))
beforeEach(async () => {
  await certify('first')
  reports = []
  validations = []
  refusals = []
  logged = []
  server = await serveWebhooks({
    address: '127.0.0.1:0',
    files: { cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key') },
    resources: [Page, Range, Lab, Vault],
    observer: {
      converted: (one) => reports.push(one),
      validated: (one) => validations.push(one),
      refused: (why) => refusals.push(why),
    },
    log: { ...log, info: (_: object, what: string) => logged.push(what) },
  })
})
afterEach(async () => {
  agent.destroy()
  await server.drain(0)
})

async function ask(
  body: unknown,
  { method = 'POST', path = '/convert', headers = {} }: { method?: string; path?: string; headers?: object } = {},
): Promise<{ code: number | undefined; body: string; headers: IncomingMessage['headers'] }> {
  const sent = request({ host: '127.0.0.1', port: server.port, agent, method, path, headers: { ...headers } })
  sent.end(typeof body === 'string' ? body : JSON.stringify(body))
  const [answer] = (await once(sent, 'response')) as [IncomingMessage]
  return { code: answer.statusCode, body: await text(answer), headers: answer.headers }
}
const converted = async (desired: string, objects: unknown[], uid?: string) =>
  (JSON.parse((await ask(review(desired, objects, uid))).body) as { response: Record<string, unknown> }).response

describe('a ConversionReview', () => {
  it('has all objects of the request back, in their order and with their metadata', async () => {
    const objects = [
      page('v1beta1', 'a', { url: 'x' }),
      page('v1', 'b', { http: { url: 'y' } }),
      page('v1beta1', 'c', { url: 'z', note: 'n' }),
    ]
    const answer = await ask(review('v1', objects))
    expect([answer.code, answer.headers['content-type']]).toEqual([200, 'application/json'])
    expect(JSON.parse(answer.body)).toEqual({
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'ConversionReview',
      response: {
        uid: 'u1',
        result: { status: 'Success' },
        convertedObjects: [
          { ...objects[0], apiVersion: 'example.com/v1', spec: { http: { url: 'x' } } },
          objects[1],
          { ...objects[2], apiVersion: 'example.com/v1', spec: { http: { url: 'z' }, note: 'n' } },
        ],
      },
    })
    expect(reports.map(({ resource, from, to, result, object }) => [resource, from, to, result, object])).toEqual([
      ['pages.example.com', 'v1beta1', 'v1', 'success', 'default/a'],
      ['pages.example.com', 'v1', 'v1', 'success', 'default/b'],
      ['pages.example.com', 'v1beta1', 'v1', 'success', 'default/c'],
    ])
  })

  it.each([
    [
      'an object whose conversion throws',
      page('v1beta1', 'b', { url: 'broken' }),
      'objects[1]: Page default/b of example.com/v1beta1: up of its conversion fails: the URL is broken',
    ],
    [
      'another kind',
      { ...page('v1', 'b', {}), kind: 'Other' },
      'objects[1]: Other of example.com/v1 cannot become example.com/v1: this process converts Page of example.com, Range of example.com, Lab of example.com, Vault of example.com',
    ],
    [
      'another version',
      page('v7', 'b', {}),
      'objects[1]: Page default/b of example.com/v7: it is no Page of example.com in a version that is declared: v1, v1beta1',
    ],
    [
      'an object without metadata',
      { apiVersion: 'example.com/v1beta1', kind: 'Page' },
      'objects[1]: it has no apiVersion, kind or metadata',
    ],
    ['no object', null, 'objects[1]: it has no apiVersion, kind or metadata'],
  ])('with %s fails as a whole, and says which one and why', async (_, object, message) => {
    expect(await converted('v1', [page('v1beta1', 'a', { url: 'x' }), object])).toEqual({
      uid: 'u1',
      result: { status: 'Failure', message },
    })
  })

  it('shows an object in part rather than fail to read it, and counts that', async () => {
    const withOwn = (bytes: number) => {
      const { metadata } = vault
      const spec = { guard: { owner: 'ada' }, note: 'n'.repeat(2000) }
      return { ...vault, spec, metadata: { ...metadata, annotations: { a: 'x'.repeat(bytes) } } }
    }
    // The mark has to fit, or the API server takes no answer, and lists nothing.
    const answer = await converted('v1beta1', [withOwn(261_000), withOwn(262_143), withOwn(1)])
    const mark = { 'fairlead.dev/partial': expect.stringContaining('its annotations have') }
    expect(answer).toMatchObject({
      result: { status: 'Success' },
      convertedObjects: [
        { metadata: { labels: { a: 'b' }, annotations: { a: 'x'.repeat(261_000), ...mark } }, spec: { owner: 'ada' } },
        { metadata: { labels: { a: 'b' }, annotations: mark }, spec: { owner: 'ada' } },
        { spec: { owner: 'ada' } },
      ],
    })
    for (const { metadata } of answer['convertedObjects'] as KubeObject[])
      expect(
        Object.entries(metadata.annotations ?? {})
          .flat()
          .join('').length,
      ).toBeLessThanOrEqual(262_144)
    expect(reports.map(({ result }) => result)).toEqual(['partial', 'partial', 'success'])
  })

  it('of a probe says which resources the process has, and in which form', async () => {
    const probe = { apiVersion: 'fairlead.dev/v1beta1', kind: 'WebhookProbe', metadata: { name: 'probe' }, spec: {} }
    const request = { uid: 'u', desiredAPIVersion: 'fairlead.dev/v1', objects: [probe] }
    const { body, headers } = await ask({ ...review('v1', []), request })
    const [answer] = (JSON.parse(body) as { response: { convertedObjects: [KubeObject] } }).response.convertedObjects
    expect(answer).toMatchObject({ apiVersion: 'fairlead.dev/v1', metadata: { name: 'probe' } })
    expect([unservedBy(answer, [Page]), unservedBy(answer, [Other]), unservedBy(probe, [Page])]).toEqual([
      [],
      ['pages.example.com'],
      ['pages.example.com'],
    ])
    expect(reports).toEqual([])
    expect(headers.connection).toBe('close')
    expect(await ask({ ...review('v1', []), request: { ...request, objects: [probe, probe] } })).toMatchObject({
      code: 400,
      body: expect.stringContaining('a WebhookProbe comes alone'),
    })
  })

  it('of an object for which a conversion does not come back says so, and the next one is answered', async () => {
    expect(await converted('v1', [page('v1beta1', 'a', { url: ENDLESS })])).toMatchObject({
      result: { status: 'Failure', message: expect.stringContaining('it does not come back within 2 s') },
    })
    expect(await converted('v1', [page('v1beta1', 'a', { url: 'x' })])).toMatchObject({ result: { status: 'Success' } })
  })

  it('shows in part what no conversion can show, rather than break each list of the version', async () => {
    const deep = page('v1', 'deep', { http: { url: 'x' }, note: 'DEEP' })
    const nested = JSON.stringify(review('v1beta1', [deep])).replace('"DEEP"', '['.repeat(9000) + ']'.repeat(9000))
    const endless = page('v1', 'endless', { http: { url: 'x' }, note: ENDLESS })
    for (const [body, why] of [
      [nested, 'a value is nested too deep'],
      [review('v1beta1', [endless]), 'it does not come back within 2 s'],
    ] as const)
      expect(JSON.parse((await ask(body)).body)).toMatchObject({
        response: {
          result: { status: 'Success' },
          convertedObjects: [
            {
              apiVersion: 'example.com/v1beta1',
              metadata: {
                namespace: 'default',
                labels: { a: 'b' },
                annotations: { 'fairlead.dev/partial': expect.stringContaining(why) },
              },
            },
          ],
        },
      })
    expect(reports.map(({ result, object }) => [result, object])).toEqual([
      ['partial', 'default/deep'],
      ['partial', 'default/endless'],
    ])
  })

  it('shows an object with many brackets in a text', async () => {
    const { code } = await ask(review('v1beta1', [page('v1', 'a', { http: { url: 'x' }, note: '"['.repeat(400_000) })]))
    expect([code, reports.map(({ result }) => result)]).toEqual([200, ['success']])
  })

  it('does not store a part: it fails where the API server stores the other version', async () => {
    const whole = { ...vault, metadata: { ...vault.metadata, annotations: LARGE } }
    const answers = ['/convert', '/convert/v1beta1'].map(
      async (path) => JSON.parse((await ask(review('v1beta1', [whole]), { path })).body) as unknown,
    )
    expect(await Promise.all(answers)).toMatchObject([
      { response: { result: { status: 'Success' } } },
      { response: { result: { status: 'Failure', message: expect.stringContaining('cannot be stored as v1beta1') } } },
    ])
    const [slow] = [page('v1', 'a', { http: { url: 'x' }, note: ENDLESS })]
    const { body } = await ask(review('v1beta1', [slow]), { path: '/convert/v1beta1' })
    expect(JSON.parse(body)).toMatchObject({ response: { result: { status: 'Failure' } } })
  })

  it('of a conversion that waits for the processor longer than it may use it is answered', async () => {
    expect(await converted('v1', [page('v1beta1', 'a', { url: 'starved' })])).toMatchObject({
      result: { status: 'Success' },
    })
  })

  it('of a version that nobody declares makes no metric of its own', async () => {
    await converted('v9', [page('v8', 'a', {})])
    expect(reports).toMatchObject([{ from: 'unknown', to: 'unknown', result: 'failure' }])
  })
})

const Range = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Range',
  plural: 'ranges',
  spec: z.object({
    from: z.int32(),
    to: z.int32(),
    cron: z
      .string()
      .regex(/^(a+)+$|^[^a]/)
      .refine((text) => text !== 'never')
      .optional(),
  }),
  status: z.object({ ready: z.int32() }),
  validate: ({ spec: { from, to }, old }) => {
    if (from === 13) throw new RangeError('a bug')
    if (from === 14) return Array.from({ length: 50 }, (_, index) => ({ path: '.spec.to', message: `${index}` }))
    return [
      ...(from > to ? [{ path: '.spec.from', message: 'it is above spec.to' }] : []),
      ...(old !== undefined && to < old.to ? [{ path: '.spec.to', message: 'it shrinks' }] : []),
      ...(to > 99 ? [{ path: '.spec.to', message: 'many', warning: true }] : []),
    ]
  },
})
const Lab = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Lab',
  plural: 'labs',
  spec: z.object({ owner: z.string(), size: z.int32(), seats: z.record(z.string(), z.int32()).optional() }),
  status: z.object({}),
  validate: ({ spec: { seats = {} } }) =>
    Object.entries(seats).flatMap(([who, size]) =>
      size > 9 ? [{ path: `.spec.seats['${who}']`, message: 'too large' }] : [],
    ),
  admit: {
    operations: ['UPDATE', 'DELETE'],
    judge: ({ operation, user, spec, old = spec }) =>
      user.name === old.owner || user.groups.includes('lab-admins')
        ? []
        : [{ path: '.spec.owner', message: `only ${old.owner} may ${operation} it` }],
  },
})
const Vault = resource({
  group: 'example.com',
  version: 'v1',
  kind: 'Vault',
  plural: 'vaults',
  spec: z.object({ guard: z.object({ owner: z.string() }).optional(), note: z.string().optional() }),
  status: z.object({}),
  served: [
    {
      version: 'v1beta1',
      spec: z.object({ owner: z.string().optional() }),
      convert: [moved('.spec.owner', '.spec.guard.owner')],
    },
  ],
  admit: {
    operations: ['DELETE'],
    judge: ({ user, spec: { guard } }) =>
      guard && guard.owner !== user.name ? [{ path: '.spec.guard', message: 'it is guarded' }] : [],
  },
})
/** An object that its old version shows in part. */
const vault = { ...page('v1', 'a', { guard: { owner: 'ada' }, note: 'n' }), kind: 'Vault' }
const LARGE = { 'example.com/large': 'x'.repeat(262_100) }
const marked = () => Vault.convert({ ...vault, metadata: { ...vault.metadata, annotations: LARGE } }, 'v1beta1')
const lab = (spec: object, more: object = {}) => ({ ...range(spec), kind: 'Lab', ...more })
const range = (spec: object, more: object = {}) => ({
  apiVersion: 'example.com/v1',
  kind: 'Range',
  metadata: { name: 'a', namespace: 'default' },
  spec,
  ...more,
})
const GOING = { metadata: { name: 'a', namespace: 'default', deletionTimestamp: 't' } }
const WRONG = { from: 9, to: 2 }
const SHRINKS = 'spec.to: it shrinks'
const admission = (object: unknown, oldObject: unknown = null, operation = 'UPDATE') => ({
  apiVersion: 'admission.k8s.io/v1',
  kind: 'AdmissionReview',
  request: { uid: 'u1', operation, object, oldObject, userInfo: { username: 'eve', groups: ['users'] } },
})
const validated = async (...args: Parameters<typeof admission>) =>
  (JSON.parse((await ask(admission(...args), { path: '/validate' })).body) as { response: Record<string, unknown> })
    .response

describe('an AdmissionReview', () => {
  it('has all refusals of validate with their paths, and its warnings', async () => {
    expect(await validated(range({ from: 101, to: 100 }), range({ from: 1, to: 200 }))).toEqual({
      uid: 'u1',
      allowed: false,
      status: {
        code: 422,
        reason: 'Invalid',
        message: 'spec.from: it is above spec.to; spec.to: it shrinks',
        details: {
          causes: [
            { field: 'spec.from', message: 'it is above spec.to', reason: 'FieldValueInvalid' },
            { field: 'spec.to', message: 'it shrinks', reason: 'FieldValueInvalid' },
          ],
        },
      },
      warnings: ['spec.to: many'],
    })
    expect(validations).toMatchObject([
      { resource: 'ranges.example.com', result: 'refused', object: 'default/a', paths: ['spec.from', 'spec.to'] },
    ])
  })

  it.each<[string, unknown, unknown]>([
    ['what is right', range({ from: 1, to: 2 }), null],
    ['another field of a spec that was wrong before', range({ from: 9, to: 2 }), range({ from: 9, to: 1 })],
    ['a spec that was not refused because validate is older', range({ from: 1, to: 2 }), range({ from: 'x' })],
    ['a wrong object that is being deleted, without a change of its spec', range(WRONG, GOING), range(WRONG)],
    ['a status that the schema does not admit', range({ from: 1, to: 2 }, { status: { ready: 'no' } }), null],
    [
      'another field of a spec that broke a check in code before',
      range({ from: 1, to: 4, cron: 'never' }),
      range({ from: 1, to: 3, cron: 'never' }),
    ],
    ['a deletion', null, range({ from: 9, to: 2 })],
  ])('admits %s', async (_, object, old) => {
    expect(await validated(object, old, object === null ? 'DELETE' : 'UPDATE')).toEqual({ uid: 'u1', allowed: true })
  })

  it.each<[string, unknown, unknown, string]>([
    ['of an object that is being deleted', range({ from: 1, to: 2 }, GOING), range({ from: 1, to: 3 }), SHRINKS],
    ['that also mends a check in code', range({ from: 1, to: 2 }), range({ from: 1, to: 3, cron: 'never' }), SHRINKS],
    [
      'of a spec that breaks a check in code as before',
      range({ from: 1, to: 2, cron: 'never' }),
      range({ from: 1, to: 3, cron: 'never' }),
      SHRINKS,
    ],
    [
      'of a spec that breaks a check in code on which validate relies',
      range({ from: 13, to: 21, cron: 'never' }),
      range({ from: 13, to: 20, cron: 'never' }),
      'spec: spec.cron is "never": Invalid input',
    ],
  ])('refuses a change %s', async (_, object, old, message) => {
    expect(await validated(object, old)).toMatchObject({ allowed: false, status: { code: 422, message } })
  })

  it('shows the first twenty of many refusals, and how many more there are', async () => {
    const { status } = (await validated(range({ from: 14, to: 20 }))) as {
      status: { message: string; details: { causes: object[] } }
    }
    expect(status.message).toMatch(/^spec\.to: 0; spec\.to: 1; .*; spec\.to: 19; and 30 more$/)
    expect(status.details.causes).toHaveLength(20)
    expect(validations[0]?.paths).toHaveLength(20)
  })

  it('refuses a new object that breaks a check in code', async () => {
    expect(await validated(range({ from: 1, to: 2, cron: 'never' }))).toMatchObject({
      allowed: false,
      status: { message: expect.stringContaining('spec.cron is "never"') },
    })
  })

  it('refuses a write for which validate throws, and blames the resource', async () => {
    expect(await validated(range({ from: 13, to: 20 }))).toMatchObject({
      allowed: false,
      status: {
        code: 500,
        message:
          'resource Range: validate throws RangeError: a bug. This is a bug of the resource: the object may be right',
      },
    })
    expect(validations).toMatchObject([{ result: 'failure', because: expect.stringContaining('a bug') }])
  })

  it('refuses a write for which a check does not come back, and answers the next one', async () => {
    expect(await validated(range({ from: 1, to: 2, cron: ENDLESS }))).toMatchObject({
      status: { code: 500, message: expect.stringContaining('it does not come back within 2 s. This is a bug of the') },
    })
    expect(await validated(range({ from: 1, to: 2 }))).toMatchObject({ allowed: true })
  })

  it('has what the user may not do', async () => {
    const [old, now] = [lab({ owner: 'ada', size: 1 }), lab({ owner: 'eve', size: 1, seats: { "o'neil": 10 } })]
    expect(await validated(now, old)).toMatchObject({
      allowed: false,
      status: {
        code: 403,
        reason: 'Forbidden',
        message: "spec.seats['o'neil']: too large; spec.owner: only ada may UPDATE it",
      },
    })
    expect(await validated(null, old, 'DELETE')).toMatchObject({
      status: { code: 403, message: 'spec.owner: only ada may DELETE it' },
    })
    expect(validations).toMatchObject([
      {
        user: 'eve',
        refusals: [
          { path: 'spec.seats.*', reason: 'FieldValueInvalid' },
          { path: 'spec.owner', reason: 'FieldValueForbidden' },
        ],
      },
      { operation: 'DELETE', object: 'default/a', paths: ['spec.owner'] },
    ])
  })

  it.each(["o'neil", "'", '', "a']b", 'a.b'])('names a key of a record that a user chooses: %j', async (who) => {
    const { status } = await validated(lab({ owner: 'eve', size: 1, seats: { [who]: 10 } }))
    const path = who.includes("']") ? 'spec.seats' : `spec.seats['${who}']`
    expect(status).toMatchObject({ code: 422, message: `${path}: too large` })
  })

  it('does not ask who may do what with a part of an object', async () => {
    const asked = { userInfo: { username: 'ada' } }
    const { request, ...review } = admission(null, marked(), 'DELETE')
    expect(await validated(null, vault, 'DELETE')).toMatchObject({ status: { message: 'spec.guard: it is guarded' } })
    for (const body of [
      { ...review, request },
      { ...review, request: { ...request, ...asked } },
    ])
      expect(JSON.parse((await ask(body, { path: '/validate' })).body)).toMatchObject({
        response: { allowed: false, status: { message: expect.stringContaining('use example.com/v1') } },
      })
  })

  it('refuses to take the mark from a part of an object: the rest would be lost', async () => {
    const old = marked()
    const bare = { ...old, metadata: page('v1', 'a', {}).metadata }
    expect(await validated(bare, old)).toMatchObject({
      allowed: false,
      status: {
        message: 'metadata.annotations: example.com/v1beta1 shows the object in part: write it as example.com/v1',
      },
    })
  })

  it('lets a user do what admit does not judge, or admits', async () => {
    const owned = lab({ owner: 'eve', size: 1 })
    const others = lab({ owner: 'ada', size: 1 })
    for (const [object, old, operation] of [
      [others, null, 'CREATE'],
      [lab({ owner: 'eve', size: 2 }), owned, 'UPDATE'],
      [null, owned, 'DELETE'],
      [lab(others.spec, { metadata: { name: 'a', labels: { a: 'b' } } }), others, 'UPDATE'],
    ] as const)
      expect(await validated(object, old, operation)).toEqual({ uid: 'u1', allowed: true })
  })

  it('takes another owner of the object for a deletion', async () => {
    const old = lab({ owner: 'ada', size: 1 })
    const metadata = { name: 'a', ownerReferences: [{ uid: 'gone' }] }
    expect(await validated({ ...old, metadata }, old)).toMatchObject({
      status: { message: 'spec.owner: only ada may DELETE it' },
    })
  })

  it('lets the owner delete an object that does not fit its schema', async () => {
    expect(await validated(null, lab({ owner: 'eve', size: 'x' }), 'DELETE')).toMatchObject({ allowed: true })
  })

  it.each([
    [
      'of a kind without validate',
      admission(page('v1', 'a', {})),
      'Page of example.com/v1 has neither "validate" nor "admit" here',
    ],
    ['without an object', admission(null), 'it has no object'],
    [
      'with other groups than a list',
      { ...admission(null), request: { ...admission(range({})).request, userInfo: { username: 'eve', groups: 5 } } },
      'it has no user',
    ],
    ['of conversions', review('v1', []), 'this is no AdmissionReview of admission.k8s.io/v1'],
  ])('%s is answered with 400', async (_, body, why) => {
    expect(await ask(body, { path: '/validate' })).toMatchObject({ code: 400, body: expect.stringContaining(why) })
  })
})

describe('what is no review', () => {
  it.each([
    ['nothing', '', 'the body is no JSON'],
    ['half of it', '{"a":', 'the body is no JSON'],
    ['a deep one', '['.repeat(200_000), 'the body is no JSON'],
    ['another object', {}, 'it has another apiVersion or kind'],
    ['an older one', { ...review('v1', []), apiVersion: 'apiextensions.k8s.io/v1beta1' }, 'it has another apiVersion'],
    ['one without a request', { ...review('v1', []), request: null }, 'it has no "request"'],
    ['one without a UID', review('v1', [], ''), '"request" has no "uid"'],
    [
      'one without objects',
      { ...review('v1', []), request: { uid: 'u', desiredAPIVersion: 'a/v1' } },
      'no list "objects"',
    ],
    ['one without a version', { ...review('v1', []), request: { uid: 'u', objects: [] } }, 'no "desiredAPIVersion"'],
  ])('such as %s is answered with 400, and the next one as always', async (_, body, why) => {
    expect(await ask(body)).toMatchObject({ code: 400, body: expect.stringContaining(why) })
    expect(refusals).toEqual(['invalid'])
    expect(await converted('v1', [page('v1beta1', 'a', { url: 'x' })])).toMatchObject({ result: { status: 'Success' } })
  })

  it('is told of once a second in the log, however often it comes', async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    for (let round = 0; round < 5; round++) await ask('')
    vi.advanceTimersByTime(1001)
    await ask('')
    vi.useRealTimers()
    expect([refusals.length, logged]).toEqual([6, ['a request is refused', 'a request is refused']])
  })

  it('is not for this path or method', async () => {
    expect(await ask('', { path: '/mutate' })).toMatchObject({
      code: 404,
      body: expect.stringContaining('POST to /convert or /validate'),
    })
    expect(await ask('', { method: 'GET' })).toMatchObject({ code: 405, headers: { allow: 'POST' } })
  })

  it('is too large, whether or not it says so before', async () => {
    const large = 'x'.repeat(9 * 2 ** 20)
    for (const headers of [{}, { 'transfer-encoding': 'chunked' }])
      expect(await ask(large, { headers })).toMatchObject({ code: 413, body: 'a request has at most 8388608 bytes\n' })
    const many = { code: 413, body: 'a request has at most 786432 objects and lists\n' }
    expect(await ask(`[${'[],'.repeat(800_000)}0]`)).toMatchObject(many)
    expect(refusals).toEqual(['too-large', 'too-large', 'too-large'])
    expect(await converted('v1', [])).toMatchObject({ result: { status: 'Success' } })
  })
})

const dial = async (): Promise<TLSSocket> => {
  const socket = connect({ host: '127.0.0.1', port: server.port, ca: authority.certificate })
  await once(socket, 'secureConnect')
  socket.on('error', () => undefined)
  return socket
}
const head = (bytes: number) => `POST /convert HTTP/1.1\r\nHost: x\r\nContent-Length: ${bytes}\r\n\r\n`

it('answers half a request after 10 s', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const half = await dial()
  const answered = once(half, 'data')
  half.write(`${head(100)}{`)
  await until(() => {
    vi.advanceTimersByTime(10_000)
    return refusals.length > 0
  })
  vi.useRealTimers()
  expect(refusals).toEqual(['late'])
  expect(String((await answered)[0])).toContain('408 Request Timeout')
  half.destroy()
})

it('lets a large body go when there are too many, and answers others', async () => {
  const sockets = await Promise.all(Array.from({ length: 3 }, dial))
  const answers: string[] = []
  for (const socket of sockets) {
    socket.on('data', (chunk: Buffer) => answers.push(String(chunk)))
    socket.write(head(7.75 * 2 ** 20))
    socket.write(Buffer.alloc(7.5 * 2 ** 20))
  }
  await until(() => answers.length > 0)
  expect(answers).toEqual([expect.stringMatching(/^HTTP\/1.1 429 .*retry-after: 1/s)])
  expect(refusals).toEqual(['busy'])
  expect(await converted('v1', [])).toMatchObject({ result: { status: 'Success' } })
  for (const socket of sockets) socket.destroy()
})

it('closes connections that never ask before those of others when there are too many', async () => {
  const body = JSON.stringify(review('v1', []))
  const mine = await dial()
  const asked = async () => {
    const answered = once(mine, 'data')
    mine.write(head(body.length) + body)
    return String((await answered)[0])
  }
  await asked()
  const idle: Socket[] = []
  let closed = 0
  for (let round = 0; round < 11; round++) {
    if (round === 5) await asked()
    const more = Array.from({ length: 100 }, () => connectPlain(server.port, '127.0.0.1'))
    for (const socket of more) socket.on('error', () => undefined).once('close', () => closed++)
    await Promise.all(more.map((socket) => once(socket, 'connect')))
    idle.push(...more)
  }
  await until(() => closed >= 100)
  expect(await asked()).toContain('"uid":"u1"')
  for (const socket of [mine, ...idle]) socket.destroy()
})

it('takes a renewed certificate for new connections, and keeps its own where the files do not fit', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  await server.drain(0)
  server = await serveWebhooks({
    address: '127.0.0.1:0',
    files: { cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key') },
    resources: [Page],
    observer: { converted() {}, validated() {}, refused() {} },
    log,
  })
  const shown = async () => {
    const socket = await dial()
    const { subject } = socket.getPeerCertificate()
    socket.destroy()
    return subject.CN
  }
  const before = await dial()
  await certify('second')
  vi.advanceTimersByTime(10_000)
  await until(async () => (await shown()) === 'second')
  await writeFile(join(dir, 'tls.crt'), authority.certificate)
  vi.advanceTimersByTime(10_000)
  await certify('third')
  vi.advanceTimersByTime(10_000)
  await until(async () => (await shown()) === 'third')
  const answered = once(before, 'data')
  const body = JSON.stringify(review('v1', []))
  before.write(head(body.length) + body)
  expect(String((await answered)[0])).toContain('200 OK')
  before.destroy()
  vi.useRealTimers()
})

it('serves on while it is drained, closes each connection after its answer, and then ends', async () => {
  const idle = await dial()
  const ended = once(idle, 'close')
  const drained = server.drain(300)
  const answer = await ask(review('v1', []))
  expect([answer.code, answer.headers.connection]).toEqual([200, 'close'])
  await Promise.all([drained, ended])
  await expect(dial()).rejects.toThrow('ECONNREFUSED')
})
