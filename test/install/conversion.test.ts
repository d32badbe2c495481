/** Conversions behind a real API server, which prunes, stores and merges by itself: it shows what the webhook answers. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { issueFrom, newAuthority } from '#pki'
import type { ConversionReport } from '#process/webhooks/conversion-review'
import { serveWebhooks, type WebhookServer } from '#process/webhooks/server'
import { type ConversionClient, mapped, moved, resource, scaled, wrapped, z } from '#sdk'
import { Values } from '../../sdk/testing/values.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { silent as log } from '../support/silent.ts'
import { until } from '../support/wait.ts'

const byName = { 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['name'] }
const names = { group: 'example.com', kind: 'Page', plural: 'pages' } as const
const old = z.object({
  url: z.string().optional(),
  port: z.int32().optional(),
  seconds: z.int32().min(0).max(1000).optional(),
  mode: z.string().optional(),
  replicas: z.int32().default(1),
  mounts: z
    .array(z.object({ name: z.string(), path: z.string().optional() }))
    .meta(byName)
    .optional(),
  list: z.array(z.object({ port: z.int32() })).optional(),
  any: z.looseObject({}).optional(),
  legacy: z.object({ note: z.string().nullable().optional() }).optional(),
})
const Page = resource({
  ...names,
  version: 'v1',
  spec: z.object({
    http: z.object({ url: z.string().optional(), tls: z.string().optional() }).optional(),
    ports: z.array(z.int32()).optional(),
    ms: z.int32().min(0).max(1_000_000).optional(),
    mode: z.string().optional(),
    replicas: z.int32().default(2),
    zone: z.string().default('a'),
    mounts: z
      .array(z.object({ name: z.string(), path: z.string().optional(), kind: z.string().default('x') }))
      .meta(byName)
      .optional(),
    list: z.array(z.object({ port: z.int32(), protocol: z.string().optional() })).optional(),
    any: z.looseObject({}).optional(),
  }),
  status: z.object({ ready: z.int32(), phase: z.string().optional() }),
  served: [
    {
      version: 'v1beta1',
      spec: old,
      status: z.object({ ready: z.int32(), age: z.string().optional() }),
      convert: [
        moved('.spec.url', '.spec.http.url'),
        wrapped('.spec.port', '.spec.ports'),
        scaled('.spec.seconds', '.spec.ms', 1000),
        mapped(
          '.spec.mode',
          '.spec.mode',
          (mode: string) => mode.toUpperCase(),
          (mode: string) => mode.toLowerCase(),
        ),
      ],
    },
  ],
})
const Before = resource({ ...names, version: 'v1beta1', spec: old, status: z.object({ ready: z.int32() }) })

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kube: KubeClient
let webhook: WebhookServer
let dir: string
let address: ConversionClient
const reports: ConversionReport[] = []
const CRD = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pages.example.com'
const fieldManager = 'fairlead'
const pathOf = (version: string, name?: string): string =>
  resourcePath({ group: 'example.com', version, resource: 'pages' }, 'default', name)
const read = (version: string, name: string) => kube.get(pathOf(version, name))
const bodyOf = ({ spec, status }: KubeObject) => ({ spec, status })
const pageOf = (version: string, name: string, spec: unknown): KubeObject => ({
  apiVersion: `example.com/${version}`,
  kind: 'Page',
  metadata: { name },
  spec,
})

beforeAll(async () => {
  cluster = await borrowCluster()
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  const validity = { now: new Date(), days: 1 }
  const authority = newAuthority({ cn: 'test' }, validity)
  const { certificate, privateKey } = issueFrom(
    authority,
    { subject: { cn: 'webhook' }, sans: ['127.0.0.1'] },
    validity,
  )
  dir = await mkdtemp(join(tmpdir(), 'fl-conversion-'))
  const files = { cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key') }
  await writeFile(files.cert, certificate)
  await writeFile(files.key, privateKey.export({ type: 'pkcs8', format: 'pem' }))
  const observer = { converted: (one: ConversionReport) => reports.push(one), validated() {}, refused() {} }
  webhook = await serveWebhooks({ address: '127.0.0.1:0', files, resources: [Page], observer, log })
  address = {
    url: `https://127.0.0.1:${webhook.port}/convert`,
    caBundle: Buffer.from(authority.certificate).toString('base64'),
  }

  await kube.apply(CRD, Before.crd(), { fieldManager })
  await until(
    async () =>
      (await kube
        .list(pathOf('v1beta1'))
        .next()
        .catch(() => undefined)) !== undefined,
  )
  await kube.create(
    pathOf('v1beta1'),
    pageOf('v1beta1', 'before', { url: 'a', seconds: 2, mode: 'x', legacy: { note: null } }),
  )
  await kube.apply(CRD, Page.crd(address), { fieldManager, force: true })
  await until(async () => (await read('v1', 'before').catch(() => undefined)) !== undefined)
}, 120_000)

afterAll(async () => {
  await kube?.delete(CRD).catch(() => {})
  await until(async () =>
    kube.get(CRD).then(
      () => false,
      () => true,
    ),
  )
  await webhook?.drain(0)
  await rm(dir, { recursive: true, force: true })
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
}, 60_000)

it('reads an object that is stored in the older version as convert does', async () => {
  const stored = { url: 'a', seconds: 2, mode: 'x', legacy: { note: null }, replicas: 1 }
  expect((await read('v1beta1', 'before')).spec).toEqual(stored)
  expect((await read('v1', 'before')).spec).toMatchObject({ http: { url: 'a' }, ms: 2000, mode: 'X', replicas: 1 })
  const { metadata } = await kube.patch(pathOf('v1', 'before'), { spec: { zone: 'b' } }, 'merge')
  expect(metadata.annotations?.['fairlead.dev/kept']).toContain('legacy')
  expect((await read('v1beta1', 'before')).spec).toEqual(stored)
  expect((await read('v1', 'before')).spec).toMatchObject({ zone: 'b' })
})

/** Creates objects with values of a version, and writes each back in the other version. */
async function writtenBack(
  version: string,
  other: string,
): Promise<{ before: KubeObject; there: KubeObject; after: KubeObject }[]> {
  const values = new Values(7)
  const schema = Page.versions().find((one) => one.version === version)?.schema ?? {}
  return Promise.all(
    Array.from({ length: 40 }, async (_, index) => {
      const name = `${version}-${index}`
      const { spec = {} } = values.admitted(schema) as { spec?: object }
      await kube.create(pathOf(version), pageOf(version, name, spec))
      const [before, there] = await Promise.all([read(version, name), read(other, name)])
      await kube.replace(pathOf(other, name), there)
      return { before, there, after: await read(version, name) }
    }),
  )
}

it('shows any object as convert does, and not one byte changes when an old client writes it back', async () => {
  const all = await writtenBack('v1', 'v1beta1')
  expect(all.map(({ there }) => bodyOf(there))).toEqual(
    all.map(({ before }) => bodyOf(Page.convert(before, 'v1beta1'))),
  )
  // The API server writes nothing if an object is the same.
  expect(all.map(({ after }) => after)).toEqual(all.map(({ before }) => before))
})

it('shows an old client its own object when a new one has written it back', async () => {
  const all = await writtenBack('v1beta1', 'v1')
  expect(all.map(({ after }) => bodyOf(after))).toEqual(all.map(({ before }) => bodyOf(before)))
})

it('keeps what an old client does not see while it patches, applies and replaces', async () => {
  const mounts = [
    { name: 'a', kind: 'y' },
    { name: 'b', kind: 'z', path: '/b' },
  ]
  await kube.create(
    pathOf('v1'),
    pageOf('v1', 'edited', { http: { url: 'a', tls: 'b' }, ports: [80, 443], ms: 1500, mounts }),
  )
  await kube.patch(pathOf('v1beta1', 'edited'), { spec: { port: 81 } }, 'merge')
  const own = { ...pageOf('v1beta1', 'edited', { url: 'c', mounts: [{ name: 'a', path: '/a' }] }) }
  await kube.apply(pathOf('v1beta1', 'edited'), own, { fieldManager: 'old', force: true })
  const wanted = {
    http: { url: 'c', tls: 'b' },
    ports: [81, 443],
    ms: 1500,
    mounts: [
      { name: 'a', kind: 'y', path: '/a' },
      { name: 'b', kind: 'z', path: '/b' },
    ],
  }
  expect((await read('v1', 'edited')).spec).toMatchObject(wanted)
  const { metadata } = await kube.apply(
    pathOf('v1beta1', 'edited'),
    { ...own, spec: { url: 'd' } },
    { fieldManager: 'old' },
  )
  expect((await read('v1', 'edited')).spec).toMatchObject({
    http: { url: 'd', tls: 'b' },
    ms: 1500,
    mounts: [{ name: 'a', kind: 'y' }, { name: 'b' }],
  })
  const managers = metadata['managedFields'] as { manager: string; fieldsV1: object }[]
  expect(managers.filter(({ fieldsV1 }) => JSON.stringify(fieldsV1).includes('fairlead.dev/kept'))).toEqual([])
  const shown = await read('v1beta1', 'edited')
  await kube.replace(pathOf('v1beta1', 'edited'), { ...shown, spec: { ...(shown.spec as object), url: 'e' } })
  expect((await read('v1', 'edited')).spec).toMatchObject({ http: { url: 'e', tls: 'b' }, ms: 1500 })
})

it('takes a whole object without annotations as all that there is: what its version does not show is gone', async () => {
  await kube.create(pathOf('v1'), pageOf('v1', 'bare', { http: { url: 'a', tls: 'b' }, ports: [80, 443], ms: 1500 }))
  const { metadata, ...shown } = await read('v1beta1', 'bare')
  const { annotations, ...others } = metadata
  expect(annotations).toHaveProperty(['fairlead.dev/kept'])
  await kube.replace(pathOf('v1beta1', 'bare'), { ...shown, metadata: others })
  const now = await read('v1', 'bare')
  expect(now.spec).not.toHaveProperty('http.tls')
  expect(now.spec).toMatchObject({ http: { url: 'a' }, ports: [80], ms: 2000 })
  expect((await read('v1beta1', 'bare')).spec).toEqual(shown['spec'])
})

it('lists all objects when one does not fit, and refuses only the writes of this one', async () => {
  await kube.create(pathOf('v1'), pageOf('v1', 'large', { http: { url: 'a', tls: 'x'.repeat(300_000) } }))
  const [page] = await Array.fromAsync(kube.list(pathOf('v1beta1')))
  const large = page?.items.find(({ metadata }) => metadata.name === 'large')
  expect(large?.metadata.annotations).toHaveProperty(['fairlead.dev/partial'])
  await expect(kube.patch(pathOf('v1beta1', 'large'), { spec: { url: 'b' } }, 'merge')).rejects.toThrow(
    'it is shown in part',
  )
  await kube.patch(pathOf('v1', 'large'), { spec: { http: { tls: 'y' } } }, 'merge')
  // A patch begins with the object of the watch cache of its version.
  await until(async () => {
    const { metadata } = await kube.get(pathOf('v1beta1', 'large'), { resourceVersion: '0' })
    return metadata.annotations?.['fairlead.dev/partial'] === undefined
  })
  await kube.patch(pathOf('v1beta1', 'large'), { spec: { url: 'b' } }, 'merge')
  expect((await read('v1', 'large')).spec).toMatchObject({ http: { url: 'b', tls: 'y' } })
})
