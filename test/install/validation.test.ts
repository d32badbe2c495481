/** validate behind a real API server: which writes it asks about, and what it makes of the answers. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { issueFrom, newAuthority } from '#pki'
import type { ValidationReport } from '#process/webhooks/admission-review'
import { serveWebhooks, type WebhookServer } from '#process/webhooks/server'
import { moved, resource, z } from '#sdk'
import { borrowCluster } from '../support/borrowed.ts'
import { kubectlFor } from '../support/kubectl.ts'
import { silent as log } from '../support/silent.ts'
import { until } from '../support/wait.ts'

const spec = z.object({ from: z.int32(), to: z.int32(), size: z.int32().default(1), note: z.string().optional() })
const Range = resource({
  group: 'validate.example.com',
  version: 'v1',
  served: [{ version: 'v1beta1', spec }],
  kind: 'Range',
  plural: 'ranges',
  spec,
  status: z.object({ ready: z.int32() }),
  scale: { spec: '.spec.size', status: '.status.ready' },
  validate: ({ spec: { from, to, note }, old }) => {
    if (note === 'bug') throw new RangeError('a bug')
    return [
      ...(from > to ? [{ path: '.spec.from', message: 'it is above spec.to' }] : []),
      ...(old !== undefined && to < old.to ? [{ path: '.spec.to', message: 'it shrinks' }] : []),
      ...(note === 'old' ? [{ path: '.spec.note', message: 'nobody reads it', warning: true }] : []),
    ]
  },
})

const Lab = resource({
  group: 'validate.example.com',
  version: 'v1',
  kind: 'Lab',
  plural: 'labs',
  spec: z.object({ owner: z.string(), size: z.int32() }),
  status: z.object({ ready: z.int32() }),
  admit: {
    operations: ['UPDATE', 'DELETE'],
    judge: ({ operation, user, spec, old = spec }) =>
      user.name === old.owner ? [] : [{ path: '.spec.owner', message: `only ${old.owner} may ${operation} it` }],
  },
})

const former = z.object({ owner: z.string().optional() })
const versioned = {
  group: 'validate.example.com',
  version: 'v1',
  served: [{ version: 'v1beta1', spec: former, convert: [moved('.spec.owner', '.spec.guard.owner')] }],
  spec: z.object({ guard: z.object({ owner: z.string() }).optional(), note: z.string().optional() }),
  status: z.object({}),
} as const
const Vault = resource({
  ...versioned,
  kind: 'Vault',
  plural: 'vaults',
  admit: {
    operations: ['DELETE'],
    judge: ({ spec: { guard } }) => (guard ? [{ path: '.spec.guard', message: 'it is guarded' }] : []),
  },
})
const Memo = resource({ ...versioned, kind: 'Memo', plural: 'memos', validate: () => [] })

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kube: KubeClient
let webhook: WebhookServer
let dir: string
const reports: ValidationReport[] = []
const asked = () => reports.map(({ object, result }) => `${object} ${result}`)
const WEBHOOKS =
  '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/fairlead-ranges.validate.example.com'
const CRD = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ranges.validate.example.com'
const fieldManager = 'fairlead'
const own = (plural: string, version = 'v1', name?: string): string =>
  resourcePath({ group: 'validate.example.com', version, resource: plural }, 'default', name)
const two = (kind: string, name: string, more: object = {}): KubeObject => ({
  apiVersion: 'validate.example.com/v1',
  kind,
  metadata: { name },
  ...more,
})
/** Metadata of which no other version can show an object whole. */
const LARGE = { metadata: { annotations: { 'example.com/large': 'x'.repeat(262_100) } } }
const pathOf = (name?: string, version = 'v1'): string =>
  resourcePath({ group: 'validate.example.com', version, resource: 'ranges' }, 'default', name)
const LAB_WEBHOOKS = WEBHOOKS.replace('ranges', 'labs')
const LAB_CRD = CRD.replace('ranges', 'labs')
const labOf = (name?: string): string => pathOf(name).replace('ranges', 'labs')
const lab = (name: string) => ({
  apiVersion: 'validate.example.com/v1',
  kind: 'Lab',
  metadata: { name },
  spec: { owner: 'ada', size: 1 },
})
/** Runs kubectl as this user, who has all rights. */
const as = async (user: string, args: string[], input?: object) =>
  (await kubectlFor(cluster))([...args, '--as', user, '--as-group', 'system:masters'], input)
const range = (name: string, more: object, version = 'v1'): KubeObject => ({
  apiVersion: `validate.example.com/${version}`,
  kind: 'Range',
  metadata: { name },
  spec: more,
})

beforeAll(async () => {
  cluster = await borrowCluster()
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  const validity = { now: new Date(), days: 1 }
  const authority = newAuthority({ cn: 'test' }, validity)
  const leaf = issueFrom(authority, { subject: { cn: 'webhook' }, sans: ['127.0.0.1'] }, validity)
  dir = await mkdtemp(join(tmpdir(), 'fl-validation-'))
  const files = { cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key') }
  await writeFile(files.cert, leaf.certificate)
  await writeFile(files.key, leaf.privateKey.export({ type: 'pkcs8', format: 'pem' }))
  const observer = { converted() {}, validated: (one: ValidationReport) => reports.push(one), refused() {} }
  webhook = await serveWebhooks({ address: '127.0.0.1:0', files, resources: [Range, Lab, Vault, Memo], observer, log })

  await kube.apply(CRD, Range.crd(), { fieldManager })
  await until(async () =>
    kube.create(pathOf(), range('older', { from: 9, to: 2 })).then(
      () => true,
      () => false,
    ),
  )
  const client = {
    url: `https://127.0.0.1:${webhook.port}/validate`,
    caBundle: Buffer.from(authority.certificate).toString('base64'),
  }
  await kube.apply(WEBHOOKS, Range.validatingWebhook?.(client, ['function']) as KubeObject, { fieldManager })
  for (const one of [Vault, Memo]) {
    const definition = CRD.replace('ranges', one.resource)
    await kube.apply(definition, one.crd({ ...client, url: client.url.replace('validate', 'convert') }), {
      fieldManager,
    })
    await kube.apply(WEBHOOKS.replace('ranges', one.resource), one.validatingWebhook?.(client, []) as KubeObject, {
      fieldManager,
    })
    await until(async () => (await kube.get(own(one.resource, 'v1beta1')).catch(() => undefined)) !== undefined)
  }
  await kube.create(own('vaults'), two('Vault', 'probe', { spec: { guard: { owner: 'ada' } } }))
  await until(async () => {
    const isAsked = await kube.delete(own('vaults', 'v1', 'probe'), { dryRun: true }).then(
      () => false,
      () => true,
    )
    await kube.create(own('memos'), two('Memo', 'probe'), { dryRun: true })
    return isAsked && asked().includes('default/probe admitted')
  })
  await kube.apply(LAB_CRD, Lab.crd(), { fieldManager })
  await kube.apply(LAB_WEBHOOKS, Lab.validatingWebhook?.(client, ['function']) as KubeObject, { fieldManager })
  await until(async () =>
    kube.create(labOf(), lab('probe')).then(
      () => true,
      () => false,
    ),
  )
  await until(async () =>
    kube.patch(labOf('probe'), { spec: { size: 2 } }, 'merge').then(
      () => false,
      () => true,
    ),
  )
  await until(async () => {
    const stored = await kube.create(pathOf(), range('probe', { from: 9, to: 2 })).catch(() => undefined)
    if (stored !== undefined) await kube.delete(pathOf('probe'))
    return stored === undefined
  })
}, 120_000)
beforeEach(() => {
  reports.length = 0
})

afterAll(async () => {
  for (const plural of ['ranges', 'labs', 'vaults', 'memos'])
    for (const path of [WEBHOOKS, CRD]) await kube?.delete(path.replace('ranges', plural)).catch(() => {})
  await webhook?.drain(0)
  await rm(dir, { recursive: true, force: true })
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
}, 60_000)

it('refuses a creation with all that is wrong, in each version', async () => {
  for (const version of ['v1', 'v1beta1'])
    await expect(
      kube.create(pathOf(undefined, version), range('a', { from: 9, to: 2 }, version)),
    ).rejects.toMatchObject({
      code: 422,
      details: { causes: [{ field: 'spec.from', message: 'it is above spec.to', reason: 'FieldValueInvalid' }] },
      message: expect.stringContaining('denied the request: spec.from: it is above spec.to'),
    })
  expect(asked()).toEqual(['default/a refused', 'default/a refused'])
})

it('refuses a change for the spec before it, and a dry run', async () => {
  await kube.create(pathOf(), range('grown', { from: 1, to: 9 }))
  await expect(kube.patch(pathOf('grown'), { spec: { from: 8, to: 7 } }, 'merge')).rejects.toThrow(
    'spec.from: it is above spec.to; spec.to: it shrinks',
  )
  await expect(kube.patch(`${pathOf('grown')}?dryRun=All`, { spec: { to: 8 } }, 'merge')).rejects.toThrow('it shrinks')
  await kube.patch(pathOf('grown'), { spec: { to: 10 } }, 'merge')
})

it('is not asked about writes that leave the spec, of an object that was wrong before', async () => {
  await kube.patch(pathOf('older'), { metadata: { labels: { a: 'b' }, finalizers: ['example.com/a'] } }, 'merge')
  await kube.patch(`${pathOf('older')}/status`, { status: { ready: 1 } }, 'merge')
  await kube.patch(`${pathOf('older')}/scale`, { spec: { replicas: 4 } }, 'merge')
  expect(asked()).toEqual([])
})

it('is not asked about what functions write: no run waits for it', async () => {
  await as('function', ['create', '-f', '-'], range('owned', { from: 9, to: 2 }))
  expect(asked()).toEqual([])
})

it('admits another field of an object that was wrong before, and refuses what makes it otherwise wrong', async () => {
  await kube.patch(pathOf('older'), { spec: { note: 'a' } }, 'merge')
  await expect(kube.patch(pathOf('older'), { spec: { from: 8 } }, 'merge')).rejects.toThrow('it is above spec.to')
  expect(asked()).toEqual(['default/older admitted', 'default/older refused'])
})

it('lets a wrong object be deleted, with its finalizer', async () => {
  await kube.delete(pathOf('older'))
  await kube.patch(pathOf('older'), { metadata: { finalizers: null } }, 'merge')
  await until(async () =>
    kube.get(pathOf('older')).then(
      () => false,
      () => true,
    ),
  )
  expect(asked()).toEqual([])
})

it('is asked about the spec of an object that is being deleted: its function still acts on it', async () => {
  const held = { ...range('going', { from: 1, to: 3 }), metadata: { name: 'going', finalizers: ['example.com/a'] } }
  await kube.create(pathOf(), held)
  await kube.delete(pathOf('going'))
  await expect(kube.patch(pathOf('going'), { spec: { to: 2 } }, 'merge')).rejects.toThrow('it shrinks')
  await kube.patch(pathOf('going'), { metadata: { finalizers: null } }, 'merge')
  expect(asked()).toEqual(['default/going admitted', 'default/going refused'])
})

it('is asked about what another version keeps, and not about other annotations', async () => {
  await kube.create(pathOf(), range('kept', { from: 1, to: 3 }))
  reports.length = 0
  for (const [name, value] of [
    ['example.com/a', 'b'],
    ['fairlead.dev/kept', '{}'],
    ['fairlead.dev/kept', null],
  ] as const)
    await kube.patch(pathOf('kept', 'v1beta1'), { metadata: { annotations: { [name]: value } } }, 'merge')
  expect(asked()).toEqual(['default/kept admitted', 'default/kept admitted'])
})

it('refuses what the user may not do, however it is written, and lets others do it', async () => {
  await kube.create(labOf(), lab('shared'))
  const refused = (operation: string) => `only ada may ${operation} it`
  const owner = [{ apiVersion: 'v1', kind: 'ConfigMap', name: 'gone', uid: 'gone' }]
  for (const [operation, ...args] of [
    ['UPDATE', 'patch', 'labs/shared', '--type=merge', '-p', '{"spec":{"owner":"eve"}}'],
    ['UPDATE', 'patch', 'labs/shared', '--type=merge', '-p', '{"spec":{"size":9}}', '--dry-run=server'],
    ['DELETE', 'patch', 'labs/shared', '--type=merge', '-p', JSON.stringify({ metadata: { ownerReferences: owner } })],
    ['DELETE', 'delete', 'labs/shared'],
    ['DELETE', 'delete', '--raw', labOf()],
  ] as [string, ...string[]][])
    await expect(as('eve', args)).rejects.toThrow(refused(operation))
  reports.length = 0
  await as('eve', ['label', 'labs/shared', 'a=b'])
  await kube.patch(`${labOf('shared')}/status`, { status: { ready: 1 } }, 'merge')
  await as('function', ['patch', 'labs/shared', '--type=merge', '-p', '{"spec":{"size":3}}'])
  expect(asked()).toEqual([])
  await as('ada', ['patch', 'labs/shared', '--type=merge', '-p', '{"spec":{"size":4}}'])
  await as('ada', ['delete', 'labs/shared'])
  expect(reports.map(({ operation, user, result }) => [operation, user, result])).toEqual([
    ['UPDATE', 'ada', 'admitted'],
    ['DELETE', 'ada', 'admitted'],
  ])
})

it('is not asked about metadata of an object without a spec', async () => {
  await kube.create(own('memos'), two('Memo', 'bare'))
  reports.length = 0
  await kube.patch(own('memos', 'v1', 'bare'), { metadata: { labels: { a: 'b' } } }, 'merge')
  expect(asked()).toEqual([])
  await kube.patch(own('memos', 'v1', 'bare'), { spec: { note: 'n' } }, 'merge')
  expect(asked()).toEqual(['default/bare admitted'])
})

it('refuses to store a part of an object as the whole, and to delete what it cannot see', async () => {
  const body = { spec: { guard: { owner: 'ada' }, note: 'n' } }
  for (const [kind, plural] of [
    ['Memo', 'memos'],
    ['Vault', 'vaults'],
  ] as const) {
    await kube.create(own(plural), two(kind, 'part', body))
    await kube.patch(own(plural, 'v1', 'part'), LARGE, 'merge')
  }
  const bare = { metadata: { annotations: { 'example.com/large': null, 'fairlead.dev/partial': null } } }
  // By the conversion or, where the API server does not ask for one of the object before, by the validation.
  await expect(kube.patch(own('memos', 'v1beta1', 'part'), bare, 'merge')).rejects.toThrow(
    /in part.* validate\.example\.com\/v1/,
  )
  await expect(kube.delete(own('vaults', 'v1beta1', 'part'))).rejects.toThrow('use validate.example.com/v1')
  await expect(kube.delete(own('vaults', 'v1', 'part'))).rejects.toThrow('it is guarded')
  expect((await kube.get(own('memos', 'v1', 'part'))).spec).toEqual(body.spec)
})

it('refuses a write where validate throws, and says whose bug it is', async () => {
  await expect(kube.create(pathOf(), range('bad', { from: 1, to: 2, note: 'bug' }))).rejects.toThrow(
    'resource Range: validate throws RangeError: a bug. This is a bug of the resource',
  )
})

it('warns a user of kubectl', async () => {
  const kubectl = await kubectlFor(cluster)
  const create = ['create', '--warnings-as-errors', '-f', '-']
  await expect(kubectl(create, range('warned', { from: 1, to: 2, note: 'old' }))).rejects.toThrow(
    'Warning: spec.note: nobody reads it',
  )
  expect(asked()).toEqual(['default/warned admitted'])
})

it('refuses changes of the spec while the process is away, and nothing else', async () => {
  await kube.create(pathOf(), range('alone', { from: 1, to: 2 }))
  await webhook.drain(0)
  await expect(kube.patch(pathOf('alone'), { spec: { to: 3 } }, 'merge')).rejects.toThrow('failed calling webhook')
  await kube.patch(`${pathOf('alone')}/status`, { status: { ready: 1 } }, 'merge')
  await kube.delete(pathOf('alone'))
  await expect(as('ada', ['delete', 'labs/probe'])).rejects.toThrow('failed calling webhook')
  await expect(kube.delete(own('vaults', 'v1', 'part'))).rejects.toThrow('failed calling webhook')
  await kube.patch(own('vaults', 'v1', 'part'), { spec: { note: 'of who guards deletions alone' } }, 'merge')
  await as('system:serviceaccount:kube-system:namespace-controller', ['delete', 'labs/probe'])
})
