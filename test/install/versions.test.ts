/** A new version without downtime: each step on a real API server, with a client of the old version that never stops. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { createKubeClient, type KubeClient, type KubeRequest, loadKubeConfig, resourcePath } from '#kube'
import { isResource, type Resource } from '#sdk'
import { migrate, renameOwners } from '../../cli/install/migration.ts'
import { takeStep } from '../../cli/install/version-steps.ts'
import { versionsIn } from '../../cli/install/versions.ts'
import { webhookCertificates } from '../../cli/install/webhook-certificates.ts'
import { loadFunctions } from '../../cli/process/functions.ts'
import { freePorts } from '../../packages/lab/ports.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { until } from '../support/wait.ts'

const SDK = new URL('../../sdk/index.ts', import.meta.url).href
const OLD = 'z.object({ url: z.string(), note: z.string().optional() })'
const NOW = 'z.object({ http: z.object({ url: z.string() }), note: z.string().optional() })'
/** Which versions each release declares; `bad` does not convert. */
const release = (
  version: string,
  spec: string,
  served = '',
) => `import { mapped, reconciler, resource, z } from '${SDK}'
const up = (url: string) => { if (url === 'bad') throw new Error('bad is no address'); return url }
export const Page = resource({
  group: 'pages.test', version: '${version}', kind: 'Page', plural: 'pages', spec: ${spec}, status: z.object({}),
  served: [${served}],
})
export const page = reconciler({ name: 'page', for: Page, reconcile: () => ({}) })
`
const old = (more: string) =>
  `{ version: 'v1beta1', spec: ${OLD}, convert: [mapped('.spec.url', '.spec.http.url', up, up)], ${more} }`
const RELEASES = {
  first: release('v1beta1', OLD),
  second: release('v1', NOW, old('')),
  deprecated: release('v1', NOW, old(`deprecated: 'use v1'`)),
  retired: release('v1', NOW, old(`retired: true`)),
  last: release('v1', NOW),
}
const NAMESPACE = 'fairlead-system'
const CRD = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pages.pages.test'
const OBJECTS = 60
const says = () => undefined

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kube: KubeClient
let dir: string
let port: number
let webhook: FairleadProcess | undefined
const file = (name: keyof typeof RELEASES) => join(dir, `${name}.ts`)
const env = () => ({ KUBECONFIG: cluster.kubeconfig, LOG_LEVEL: 'silent' })
const fairlead = (...args: string[]) => command(args, env())
const versions = (name: keyof typeof RELEASES, ...args: string[]) => fairlead('versions', '-f', file(name), ...args)
const pathOf = (version: string, name?: string) =>
  resourcePath({ group: 'pages.test', version, resource: 'pages' }, 'default', name)
const pageOf = (name: string, url: string) => ({
  apiVersion: 'pages.test/v1beta1',
  kind: 'Page',
  metadata: { name },
  spec: { url },
})

/** Its versions, a star for the stored one; status.storedVersions; the webhook. */
async function definition(): Promise<string> {
  const { spec, status } = await kube.get<{
    spec: { conversion: { strategy: string }; versions: { name: string; served: boolean; storage: boolean }[] }
    status: { storedVersions: string[] }
  }>(CRD)
  const names = spec.versions.map(
    ({ name, served, storage }) => `${name}${storage ? '*' : ''}${served ? '' : ' unserved'}`,
  )
  return `${names.toSorted().join(', ')}; ${status.storedVersions.join(', ')}; ${spec.conversion.strategy}`
}

async function pages(version: string): Promise<KubeObject[]> {
  const all: KubeObject[] = []
  for await (const { items } of kube.list(pathOf(version))) all.push(...items)
  return all
}

async function restartWebhook(name: keyof typeof RELEASES): Promise<void> {
  webhook?.kill('SIGKILL')
  await webhook?.exited
  webhook = startFairlead(['admit', '-f', file(name), '--tls', dir, '--address', `127.0.0.1:${port}`], {})
  await webhook.logged(({ msg }) => msg === 'serving')
}

async function resourceOf(name: keyof typeof RELEASES): Promise<Resource> {
  const [one] = await loadFunctions({ function: [file(name)], builtin: [] })
  if (one === undefined || !isResource(one.for)) throw new Error('no resource')
  return one.for
}

/** A client that applies elsewhere, or after something has happened. */
const applying = (to: (path: string) => string | Promise<string>): KubeClient => ({
  ...kube,
  apply: async (path, ...others) => kube.apply(await to(path), ...others),
})

/** A policy refuses writes of the page while something happens. */
async function refusing(name: string, happens: () => Promise<void>): Promise<void> {
  const path = '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic'
  const resourceRules = [
    {
      apiGroups: ['pages.test'],
      apiVersions: ['*'],
      resources: ['pages'],
      operations: ['UPDATE'],
      resourceNames: [name],
    },
  ]
  await kube.create(`${path}ies`, {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingAdmissionPolicy',
    metadata: { name: 'frozen' },
    spec: { matchConstraints: { resourceRules }, validations: [{ expression: 'false', message: 'not now' }] },
  })
  await kube.create(`${path}ybindings`, {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingAdmissionPolicyBinding',
    metadata: { name: 'frozen' },
    spec: { policyName: 'frozen', validationActions: ['Deny'] },
  })
  const isRefused = async () =>
    kube.patch(pathOf('v1beta1', name), {}, 'merge', { dryRun: true }).then(
      () => false,
      () => true,
    )
  await until(isRefused)
  await happens()
  await kube.delete(`${path}ybindings/frozen`)
  await until(async () => !(await isRefused()))
}

beforeAll(async () => {
  cluster = await borrowCluster()
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  dir = await mkdtemp(join(tmpdir(), 'fl-versions-'))
  for (const [name, text] of Object.entries(RELEASES)) await writeFile(join(dir, `${name}.ts`), text)
  ;[port = 0] = await freePorts(1)
  await fairlead('install', '-f', file('first'))
  const { authority, leaf } = webhookCertificates(new Map(), new Date())
  for (const one of [authority, leaf]) if (one) await kube.create(`/api/v1/namespaces/${NAMESPACE}/secrets`, one)
  for (const key of ['tls.crt', 'tls.key'] as const)
    await writeFile(join(dir, key), Buffer.from(leaf?.data[key] ?? '', 'base64'))
  // The API server of this machine has no route to pods.
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'fairlead-webhooks' },
    spec: { type: 'ExternalName', externalName: 'localhost', ports: [{ port }] },
  }
  await kube.apply(`/api/v1/namespaces/${NAMESPACE}/services/fairlead-webhooks`, service, {
    fieldManager: 'test',
    force: true,
  })
  for (let index = 0; index < OBJECTS; index++) await kube.create(pathOf('v1beta1'), pageOf(`p${index}`, `u${index}`))
  await kube.apply(pathOf('v1beta1', 'applied'), pageOf('applied', 'u'), { fieldManager: 'gitops' })
  const { metadata } = await kube.get<KubeObject>(pathOf('v1beta1', 'p0'))
  await kube.create('/api/v1/namespaces/default/configmaps', {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: {
      name: 'owned',
      ownerReferences: [{ apiVersion: 'pages.test/v1beta1', kind: 'Page', name: 'p0', uid: metadata.uid ?? '' }],
    },
  })
  await restartWebhook('second')
}, 120_000)
afterAll(async () => {
  await webhook?.[Symbol.asyncDispose]()
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
  await rm(dir, { recursive: true, force: true })
})

it('shows what is next, and changes nothing; an installation does not store another version at once', async () => {
  const before = await definition()
  const shown = await versions('second')
  expect(shown).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('--next: serve: serve v1, v1beta1 as declared'),
  })
  expect(shown.stdout).toMatch(/pages\.pages\.test +v1beta1 +yes +now +no +served +61/)
  expect(await fairlead('install', '-f', file('second'))).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('fairlead versions --next goes there step by step'),
  })
  expect(await definition()).toBe(before)
})

it('serves no version in which an object cannot be read, then both, while it stores the old one', async () => {
  await kube.create(pathOf('v1beta1'), pageOf('odd', 'bad'))
  expect(await versions('second', '--next')).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(
      /1 objects of pages\.pages\.test cannot be read as v1, and nothing is changed.*default\/odd: .*bad is no address/,
    ),
  })
  expect(await definition()).toBe('v1beta1*; v1beta1; None')
  await kube.delete(pathOf('v1beta1', 'odd'))
  expect(await versions('second', '--next')).toMatchObject({ code: 0 })
  expect(await definition()).toBe('v1, v1beta1*; v1beta1; Webhook')
  expect((await kube.get(pathOf('v1', 'p1'))).spec).toEqual({ http: { url: 'u1' } })
  const whole = { ...pageOf('part', ''), apiVersion: 'pages.test/v1', spec: { http: { url: 'bad' } } }
  await expect(kube.create(pathOf('v1'), whole)).rejects.toThrow('it cannot be stored as v1beta1')
  await expect(kube.get(pathOf('v1beta1', 'part'))).rejects.toThrow('not found')
})

it('stores the new version, goes back to the old release, and comes again', async () => {
  expect(await versions('second', '--next')).toMatchObject({ code: 0 })
  expect(await definition()).toBe('v1*, v1beta1; v1beta1, v1; Webhook')
  expect(JSON.stringify(await kube.get(CRD))).toContain('"path":"/convert"')
  await kube.patch(pathOf('v1', 'p1'), { spec: { note: 'n' } }, 'merge', { fieldManager: 'new' })
  expect(await versions('second', '--back')).toMatchObject({ code: 0 })
  expect(await definition()).toBe('v1, v1beta1*; v1beta1, v1; Webhook')
  const back = async () =>
    migrate(kube, await resourceOf('second'), { storage: 'v1beta1', going: [], says, settleMs: 0 })
  await refusing('p2', async () =>
    expect(back()).rejects.toThrow(
      /^1 objects of pages\.pages\.test cannot be written again, such as default\/p2: .*not now/,
    ),
  )
  expect(await definition()).toBe('v1, v1beta1*; v1beta1, v1; Webhook')
  await back()
  expect(await definition()).toBe('v1, v1beta1*; v1beta1; Webhook')
  expect(await versions('second', '--back')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('every object is stored as v1beta1: there is no step back'),
  })
  await versions('first', '--next')
  expect(await definition()).toBe('v1 unserved, v1beta1*; v1beta1; Webhook')
  await migrate(kube, await resourceOf('first'), { storage: 'v1beta1', going: ['v1'], says, settleMs: 0 })
  for (const one of await pages('v1beta1')) expect(JSON.stringify(one.metadata)).not.toContain('pages.test/v1"')
  await versions('first', '--next')
  expect(await definition()).toBe('v1beta1*; v1beta1; None')
  expect(await fairlead('install', '-f', file('first'))).toMatchObject({ code: 0 })
  await versions('second', '--next')
  await versions('second', '--next')
  expect(await definition()).toBe('v1*, v1beta1; v1beta1, v1; Webhook')
}, 60_000)

it('takes no answer that the version is not served for an object that is gone', async () => {
  const behind = applying((path) => path.replace('pages.test/v1/', 'pages.test/v9/'))
  await expect(
    migrate(behind, await resourceOf('second'), { storage: 'v1', going: [], says, settleMs: 0 }),
  ).rejects.toThrow(/^61 objects of pages\.pages\.test cannot be written again, .*404 page not found/)
  expect(await definition()).toBe('v1*, v1beta1; v1beta1, v1; Webhook')
})

it('says what to do for a release that does not know a version in which objects may be stored', async () => {
  expect(await versions('last', '--next')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(
      'objects may be stored as v1beta1, which these functions do not declare: add it to "served", with its "convert"',
    ),
  })
})

it('migrates each object, also after it was killed, while an old client edits and creates', async () => {
  const edits = new Map<string, string>()
  const over = new AbortController()
  const editing = (async () => {
    for (let index = 0; !over.signal.aborted; index++) {
      const name = index % 5 === 0 ? `new${index}` : `p${OBJECTS / 2 + ((index * 7) % (OBJECTS / 2))}`
      if (name.startsWith('new')) await kube.create(pathOf('v1beta1'), pageOf(name, `edit${index}`))
      else await kube.patch(pathOf('v1beta1', name), { spec: { url: `edit${index}` } }, 'merge')
      edits.set(name, `edit${index}`)
    }
  })()
  const versionOf = async (name: string) => (await kube.get(pathOf('v1', name))).metadata.resourceVersion
  const [first, last] = [await versionOf('applied'), await versionOf('p9')]
  const killed = startFairlead(['versions', '-f', file('second'), '--next'], env())
  await until(async () => (await versionOf('applied')) !== first)
  killed.kill('SIGKILL')
  await killed.exited
  expect(await versionOf('p9')).toBe(last)
  expect(await definition()).toBe('v1*, v1beta1; v1beta1, v1; Webhook')
  const resource = await resourceOf('second')
  let times = 3
  const recreating = applying(async (path) => {
    if (!path.endsWith('/p5') || times-- <= 0) return path
    await kube.delete(path)
    await kube.create(pathOf('v1'), { ...pageOf('p5', ''), apiVersion: 'pages.test/v1', spec: { http: { url: 'u5' } } })
    return path
  })
  await migrate(recreating, resource, { storage: 'v1', going: [], says, settleMs: 0 })
  over.abort()
  await editing
  expect(await definition()).toBe('v1*, v1beta1; v1; Webhook')
  // What is stored as v1 needs no webhook to be read as v1.
  webhook?.kill('SIGKILL')
  await webhook?.exited
  const all = await pages('v1')
  expect(all.length).toBeGreaterThan(OBJECTS)
  const urlOf = (name: string) => edits.get(name) ?? `u${name.slice(1).replace('pplied', '')}`
  expect(all.map(({ metadata, spec }) => [metadata.name, spec])).toEqual(
    all.map(({ metadata: { name } }) => [name, { http: { url: urlOf(name) }, ...(name === 'p1' && { note: 'n' }) }]),
  )
  // And managers keep what they have.
  await expect(migrate(kube, resource, { storage: 'v1', going: [], says, settleMs: 0, refusedMs: 0 })).rejects.toThrow(
    /cannot be written again, .*conversion webhook/,
  )
  expect(await pages('v1')).toEqual(all)
}, 120_000)

it('waits for the webhook with the first object that is refused', async () => {
  let refused = 0
  const interrupted: KubeClient = {
    ...kube,
    apply: async (path, ...others) => {
      try {
        return await kube.apply(path, ...others)
      } catch (error) {
        if (++refused === 2) await restartWebhook('second')
        throw error
      }
    },
  }
  await migrate(interrupted, await resourceOf('second'), { storage: 'v1', going: [], says, settleMs: 0 })
  expect(refused).toBe(2)
}, 60_000)

it('tries those objects alone once more that were refused', async () => {
  const times = new Map<string, number>()
  const starting = applying((path) => {
    const name = path.split('/').at(-1) ?? ''
    times.set(name, (times.get(name) ?? 0) + 1)
    return name.startsWith('p1') && times.get(name) === 1 ? path.replace('pages.test/v1/', 'pages.test/v9/') : path
  })
  await migrate(starting, await resourceOf('second'), { storage: 'v1', going: [], says, settleMs: 0 })
  expect(times.get('p3')).toBe(1)
  for (const [name, tries] of times) expect(`${name}: ${tries}`).toBe(`${name}: ${name.startsWith('p1') ? 2 : 1}`)
}, 60_000)

it('begins again only when another version may have been stored meanwhile', async () => {
  const writes = async (changes: readonly object[]) => {
    let times = 0
    const lines: string[] = []
    const watching = applying(async (path) => {
      if (path.endsWith('/p1') && times++ === 0) for (const spec of changes) await kube.patch(CRD, { spec }, 'merge')
      return path
    })
    const resource = await resourceOf('second')
    await migrate(watching, resource, { storage: 'v1', going: [], says: (line) => lines.push(line), settleMs: 0 })
    return { times, last: lines.at(-1) }
  }
  const named = (shortName: string) => ({ names: { shortNames: [shortName] } })
  expect(await writes([named('pg')])).toMatchObject({ times: 1 })
  const { spec } = await kube.get<{ spec: { versions: { name: string }[] } }>(CRD)
  const storing = (version: string) => ({
    versions: spec.versions.map((one) => ({ ...one, storage: one.name === version })),
  })
  expect(await writes([storing('v1beta1'), storing('v1')])).toMatchObject({ times: 2 })
  expect(await definition()).toBe('v1*, v1beta1; v1; Webhook')
}, 60_000)

it('goes on by itself, from the page and the object where it was, when the API server is away and comes back', async () => {
  const access = await loadKubeConfig({ paths: [cluster.kubeconfig] })
  const server = new URL(access.server)
  const [port = 0] = await freePorts(1)
  const sockets = new Set<Socket>()
  const door = createServer((socket) => {
    const onward = connect(Number(server.port), server.hostname)
    for (const one of [socket, onward]) sockets.add(one.on('error', () => one.destroy()))
    socket.pipe(onward).pipe(socket)
  })
  const close = async () => {
    for (const one of sockets) one.destroy()
    await new Promise((resolve) => door.close(resolve))
  }
  await using through = createKubeClient({ ...access, server: `https://127.0.0.1:${port}`, userAgent: 'test' })
  const waits: string[] = []
  const says = (line: string): void => {
    if (!line.startsWith('waits for an answer')) return
    waits.push(line)
    door.listen(port, '127.0.0.1')
  }
  const closed = new Set<string>()
  const once = async (what: string) => {
    if (closed.has(what)) return
    closed.add(what)
    await close()
  }
  const interrupted: KubeClient = {
    ...through,
    async *list(path, options) {
      for await (const page of through.list(path, { ...options, limit: 25 })) {
        yield page as never
        await once('page')
      }
    },
    async apply(path, ...others) {
      if (path.endsWith('/p3')) await once('object')
      return through.apply(path, ...others)
    },
  }
  const resource = await resourceOf('second')
  await migrate(interrupted, resource, { storage: 'v1', going: [], says, settleMs: 0 })
  await close()
  expect(waits).toHaveLength(3)
  expect(waits[0]).toMatch(/^waits for an answer, up to 5 minutes: .*nothing listens at/)
  expect([...closed]).toEqual(['page', 'object'])
  expect(await definition()).toBe('v1*, v1beta1; v1; Webhook')
}, 60_000)

it('ends against who gives an owner reference the old version again and again, with the object', async () => {
  const owned = '/api/v1/namespaces/default/configmaps/owned'
  const { ownerReferences } = (await kube.get<KubeObject>(owned)).metadata
  const fought: KubeClient = {
    ...kube,
    patch: async (path, ...others) => {
      const after = await kube.patch(path, ...others)
      if (path === owned) await kube.patch(owned, { metadata: { ownerReferences } }, 'merge')
      return after as never
    },
  }
  const names = { group: 'pages.test', kind: 'Page' }
  await expect(renameOwners(fought, names, { storage: 'v1', going: ['v1beta1'], says })).rejects.toThrow(
    `somebody writes pages.test/v1beta1 into the owner references of ${owned} again and again`,
  )
})

it('deprecates, takes the old version from clients, and gives it back', async () => {
  await restartWebhook('deprecated')
  await versions('deprecated', '--next')
  expect((await versions('deprecated')).stdout).toMatch(/v1beta1 +yes +no +yes +served/)
  expect(await versions('retired', '--next')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('v1beta1 of pages.pages.test is read for Reconciler page: first install functions'),
  })
  expect(await definition()).toBe('v1*, v1beta1; v1; Webhook')
  expect(await fairlead('install', '-f', file('deprecated'))).toMatchObject({ code: 0 })
  await restartWebhook('retired')
  const state = await versionsIn(kube, await resourceOf('retired'))
  let stale = 3
  // An API server that is behind shows the version as before.
  const request = <T>(call: KubeRequest) => {
    const isOld = call.path === '/apis/pages.test/v1beta1' && stale-- > 0
    return kube.request<T>(isOld ? { ...call, path: '/apis/pages.test/v1' } : call)
  }
  if (state === undefined) throw new Error('no state')
  await takeStep({ ...kube, request }, [], state, { kind: 'unserve', versions: ['v1beta1'] }, says)
  expect(stale).toBeLessThan(0)
  expect(await definition()).toBe('v1*, v1beta1 unserved; v1; Webhook')
  await expect(kube.get(pathOf('v1beta1', 'p1'))).rejects.toThrow('not found')
  await restartWebhook('deprecated')
  await versions('deprecated', '--next')
  expect(await definition()).toBe('v1*, v1beta1; v1; Webhook')
  await restartWebhook('retired')
  await versions('retired', '--next')
  expect(await definition()).toBe('v1*, v1beta1 unserved; v1; Webhook')
})

it('removes a version that nothing names any more, and managers keep their fields', async () => {
  expect((await versions('retired')).stdout).toMatch(/--next: clean: take v1beta1 out of managedFields/)
  expect(await versions('retired', '--next')).toMatchObject({ code: 0 })
  for (const one of await pages('v1')) expect(JSON.stringify(one.metadata)).not.toContain('v1beta1')
  const { metadata } = await kube.get<KubeObject>('/api/v1/namespaces/default/configmaps/owned')
  expect(metadata.ownerReferences).toMatchObject([{ apiVersion: 'pages.test/v1', name: 'p0' }])
  const body = {
    apiVersion: 'pages.test/v1',
    kind: 'Page',
    metadata: { name: 'applied' },
    spec: { http: { url: 'other' } },
  }
  await expect(kube.apply(pathOf('v1', 'applied'), body, { fieldManager: 'another' })).rejects.toThrow(
    'conflict with "gitops"',
  )
  expect((await versions('retired')).stdout).toContain('there is no next step')
  // As the keeper does with a new authority.
  const { spec } = await kube.get<{ spec: { conversion: { webhook: { clientConfig: { caBundle: string } } } } }>(CRD)
  const caBundle = btoa(`${atob(spec.conversion.webhook.clientConfig.caBundle)}\n`)
  const trust = { spec: { conversion: { webhook: { clientConfig: { caBundle } } } } }
  await kube.patch(CRD, trust, 'merge', { fieldManager: 'fairlead-install' })
  webhook?.kill('SIGKILL')
  expect(await versions('last', '--next')).toMatchObject({ code: 0 })
  expect(await definition()).toBe('v1*; v1; None')
  expect(await fairlead('install', '-f', file('last'))).toMatchObject({ code: 0 })
  expect(await definition()).toBe('v1*; v1; None')
  await kube.apply(
    pathOf('v1', 'applied'),
    { ...body, spec: { http: { url: 'u' }, note: 'n' } },
    { fieldManager: 'gitops' },
  )
})

it('needs no webhook for versions with the same fields, and loses none that is new', async () => {
  const more = 'z.object({ text: z.string(), more: z.string().optional() })'
  const note = (version: string, now: string, served = '') => `import { reconciler, resource, z } from '${SDK}'
const spec = z.object({ text: z.string() })
export const Note = resource({
  group: 'notes.test', version: '${version}', kind: 'Note', plural: 'notes', spec: ${now}, status: z.object({}), served: [${served}],
})
export const note = reconciler({ name: 'note', for: Note, reconcile: () => ({}) })
`
  const files = {
    first: note('v1beta1', 'spec'),
    both: note('v1', more, `{ version: 'v1beta1', spec }`),
    narrow: note('v1', 'spec'),
    last: note('v1', more),
  }
  const fileOf = (name: keyof typeof files) => join(dir, `note-${name}.ts`)
  for (const name of Object.keys(files) as (keyof typeof files)[]) await writeFile(fileOf(name), files[name])
  await fairlead('install', '-f', fileOf('first'))
  const notes = resourcePath({ group: 'notes.test', version: 'v1beta1', resource: 'notes' }, 'default')
  for (const name of ['a', 'b', 'c'])
    await kube.create(notes, {
      apiVersion: 'notes.test/v1beta1',
      kind: 'Note',
      metadata: { name },
      spec: { text: 'x' },
    })
  const next = (name: keyof typeof files = 'last', way = '--next') =>
    fairlead('versions', 'notes', '-f', fileOf(name), way)
  const stored = notes.replace('v1beta1', 'v1')
  expect(await next('both')).toMatchObject({ code: 0, stderr: expect.stringContaining('notes.notes.test: store: ') })
  await kube.patch(`${stored}/a`, { spec: { more: 'm' } }, 'merge')
  const kept = async (name = 'a') => (await kube.get<KubeObject>(`${stored}/${name}`)).spec
  expect(await kept()).toEqual({ text: 'x', more: 'm' })
  // That is what a conversion is for.
  await kube.patch(`${stored}/c`, { spec: { more: 'm' } }, 'merge')
  await kube.patch(`${notes}/c`, { spec: { text: 'y' } }, 'merge')
  expect(await kept('c')).toEqual({ text: 'y' })
  const refused = { code: 1, stderr: expect.stringMatching(/would break objects that are stored:\n +v1: spec\.more /) }
  expect(await next('both', '--back')).toMatchObject(refused)
  expect(await fairlead('install', '-f', fileOf('both'))).toMatchObject({ code: 0 })
  expect(await fairlead('install', '-f', fileOf('last'))).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('take a version away by fairlead versions --next'),
  })
  const [one] = await loadFunctions({ function: [fileOf('last')], builtin: [] })
  if (one === undefined || !isResource(one.for)) throw new Error('no resource')
  await migrate(kube, one.for, { storage: 'v1', going: [], says, settleMs: 0 })
  const takes = (step: string) => ({ code: 0, stderr: expect.stringContaining(`notes.notes.test: ${step}: `) })
  expect(await next()).toMatchObject(takes('unserve'))
  await migrate(kube, one.for, { storage: 'v1', going: ['v1beta1'], says, settleMs: 0 })
  expect(await next('narrow')).toMatchObject(refused)
  expect(await next()).toMatchObject(takes('remove'))
  expect(await next()).toMatchObject({ code: 0, stderr: expect.stringContaining('there is no step to take') })
  expect(await kept()).toEqual({ text: 'x', more: 'm' })
  expect(JSON.stringify((await kube.get<KubeObject>(`${stored}/b`)).metadata)).not.toContain('v1beta1')
  expect(await fairlead('install', '-f', fileOf('last'))).toMatchObject({ code: 0 })
}, 60_000)
