/** The webhook of conversions as it is installed: its certificates, its proof, and an API server that calls two processes. */
import { generateKeyPairSync } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { parseAllDocuments } from 'yaml'
import type { KubeObject } from '#contracts'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import type { CustomResourceDefinition } from '#sdk'
import type { TlsSecret } from '../../cli/install/certificates.ts'
import { certifiedWebhook } from '../../cli/install/webhook.ts'
import { webhookCertificates } from '../../cli/install/webhook-certificates.ts'
import { freePorts } from '../../packages/lab/ports.ts'
import { kubeconfigOf } from '../support/account.ts'
import { borrowCluster } from '../support/borrowed.ts'
import { command } from '../support/command.ts'
import { type FairleadProcess, startFairlead } from '../support/fairlead.ts'
import { type Kubectl, kubectlFor } from '../support/kubectl.ts'
import { until } from '../support/wait.ts'

const SDK = new URL('../../sdk/index.ts', import.meta.url).href
const modules = (
  note: string,
  validate = 'validate: () => [],',
) => `import { moved, reconciler, resource, z } from '${SDK}'
export const Page = resource({
  group: 'pages.test', version: 'v1', kind: 'Page', plural: 'pages',
  spec: z.object({ http: z.object({ url: z.string() }), ${note}: z.string().optional() }), status: z.object({}),
  ${validate}
  served: [{ version: 'v1beta1', spec: z.object({ url: z.string() }), convert: [moved('.spec.url', '.spec.http.url')] }],
})
export const page = reconciler({ name: 'page', for: Page, reconcile: () => ({}) })
`
const DAY_MS = 86_400_000
const NAMESPACE = 'fairlead-system'
const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
const CRD = `${CRDS}/pages.pages.test`
const SECRETS = `/api/v1/namespaces/${NAMESPACE}/secrets`
const KINDS = [
  'Deployment',
  'Service',
  'PodDisruptionBudget',
  'NetworkPolicy',
  'CronJob',
  'NetworkPolicy',
  'ServiceAccount',
  'Role',
  'RoleBinding',
  'ClusterRole',
  'ClusterRoleBinding',
]
const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations'
const CONFIGURATION = `${CONFIGURATIONS}/fairlead-pages.pages.test`
/** One of somebody else, about a kind that is not there. */
const configuration = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'ValidatingWebhookConfiguration',
  metadata: { name: 'by-hand.pages.test' },
  webhooks: [
    {
      name: 'by-hand.pages.test',
      clientConfig: { service: { namespace: NAMESPACE, name: 'fairlead-webhooks', path: '/validate' } },
      admissionReviewVersions: ['v1'],
      sideEffects: 'None',
      rules: [{ apiGroups: ['absent.test'], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pages'] }],
    },
  ],
}
const REFUSED = { code: 1, stdout: '' }

let cluster: Awaited<ReturnType<typeof borrowCluster>>
let kube: KubeClient
let kubectl: Kubectl
let dir: string
let file: string
/** Functions with a definition that would lose a field. */
let other: string
let front: Front
const processes: FairleadProcess[] = []
const fairlead = (...args: string[]) => command(args, { KUBECONFIG: cluster.kubeconfig, LOG_LEVEL: 'silent' })
const definition = () => kube.get<CustomResourceDefinition & KubeObject>(CRD)
const pathOf = (version: string, name?: string) =>
  resourcePath({ group: 'pages.test', version, resource: 'pages' }, 'default', name)
const secretOf = (name: string) => kube.get<TlsSecret>(`${SECRETS}/${name}`)

interface CronJob {
  spec: { jobTemplate: { spec: { template: { spec: { containers: [{ args: string[] }] } } } } }
}

/** As a Service: each connection goes to one of the processes that accept it. */
class Front {
  readonly server: Server
  ports: number[] = []
  /** How many connections with each port have ended. */
  readonly ended = new Map<number, number>()
  #next = 0

  constructor(port: number) {
    this.server = createServer((client) => this.#forward(client, this.#next++, this.ports.length)).listen(
      port,
      'localhost',
    )
  }

  #forward(client: Socket, at: number, tries: number): void {
    client.on('error', () => client.destroy())
    const to = this.ports[at % this.ports.length]
    if (tries === 0 || to === undefined) return void client.destroy()
    const server = connect(to, '127.0.0.1')
    let isOpen = false
    server.once('connect', () => {
      isOpen = true
      server.once('close', () => this.ended.set(to, (this.ended.get(to) ?? 0) + 1))
      client.pipe(server).pipe(client)
    })
    server.once('error', () => (isOpen ? client.destroy() : this.#forward(client, at + 1, tries - 1)))
    server.once('close', () => server.bytesRead > 0 && client.destroy())
    client.once('close', () => server.destroy())
  }
}

/** A definition of a function that is not in the image. */
const foreign = ({ apiVersion, kind, spec }: CustomResourceDefinition) => ({
  apiVersion,
  kind,
  metadata: { name: 'others.pages.test' },
  spec: { ...spec, names: { kind: 'Other', plural: 'others' } },
})

/** A Secret with another key has to be made again. */
async function damage(name: string): Promise<void> {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const key = Buffer.from(privateKey.export({ type: 'pkcs8', format: 'pem' })).toString('base64')
  await kube.patch(`${SECRETS}/${name}`, { data: { 'tls.key': key } }, 'merge')
}

/** As the kubelet: brings the Secret to the pods. */
async function mount(): Promise<void> {
  const { data } = await secretOf('fairlead-webhooks-tls')
  for (const name of ['tls.crt', 'tls.key'] as const)
    await writeFile(join(dir, name), Buffer.from(data[name], 'base64'))
}

async function startWebhook(functions = file): Promise<FairleadProcess> {
  const args = ['admit', '-f', functions, '--tls', dir, '--address', '127.0.0.1:0', '--drain-seconds', '1']
  const one = startFairlead(args, {})
  processes.push(one)
  const { port } = await one.logged(({ msg }) => msg === 'serving')
  front.ports.push(Number(port))
  return one
}

/** Reads an object that is not stored in this version, 100 times a second, while something happens; returns what failed. */
async function whileReading(happens: () => Promise<unknown>): Promise<{ reads: number; failures: string[] }> {
  const reads: Promise<unknown>[] = []
  const failures: string[] = []
  const timer = setInterval(() => {
    const read = kube.get(pathOf('v1beta1', 'a')).then(
      ({ spec }) => expect(spec).toEqual({ url: 'x' }),
      (error: Error) => failures.push(error.message),
    )
    reads.push(read)
  }, 10)
  await happens().finally(() => clearInterval(timer))
  await Promise.all(reads)
  return { reads: reads.length, failures }
}

beforeAll(async () => {
  cluster = await borrowCluster()
  kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'test' })
  kubectl = await kubectlFor(cluster)
  dir = await mkdtemp(join(tmpdir(), 'fl-webhook-'))
  file = join(dir, 'page.ts')
  other = join(dir, 'other.ts')
  await writeFile(file, modules('note'))
  const [port = 0] = await freePorts(1)
  front = new Front(port)
})
afterAll(async () => {
  for (const one of processes) await one[Symbol.asyncDispose]()
  front?.server.close()
  await kube?.close()
  await cluster?.[Symbol.asyncDispose]()
  await rm(dir, { recursive: true, force: true })
})

it('is not depended on before it is there: without a Service, nothing is installed', async () => {
  expect(await fairlead('install', '-f', file)).toMatchObject({
    ...REFUSED,
    stderr: expect.stringContaining('there is no Service fairlead-webhooks'),
  })
  await expect(definition()).rejects.toThrow('not found')
  await expect(kube.get('/apis/fairlead.dev/v1alpha1/reconcilers/page')).rejects.toThrow('not found')
})

it.each([
  [[], 'there is no Service fairlead-webhooks, by which the API server converts objects and asks admit'],
  [['--team'], '"admit" of Page needs one'],
])('is demanded by admit, which nobody else asks: install %j is refused', async (args, why) => {
  const judged = join(dir, 'judged.ts')
  const admit = "admit: { operations: ['DELETE'], judge: () => [] },"
  const alone = modules('note', admit).replace(/served: .*/, '')
  await writeFile(judged, alone.replace('reconcile:', "namespaces: ['default'], reconcile:"))
  const { code, stdout, stderr } = await fairlead('install', ...args, '-f', judged)
  expect([code === 0, stdout]).toEqual([false, ''])
  expect(stderr).toContain(why)
  await expect(definition()).rejects.toThrow('not found')
})

it('is not needed for validate alone, which runs ask: the installation says that the API server does not', async () => {
  const alone = join(dir, 'alone.ts')
  await writeFile(
    alone,
    modules('note')
      .replace(/served: .*/, '')
      .replaceAll('pages', 'notes')
      .replaceAll('page', 'note'),
  )
  expect(await fairlead('install', '-f', alone)).toMatchObject({
    code: 0,
    stdout: expect.not.stringContaining('WebhookConfiguration'),
    stderr: expect.stringContaining('runs ask validate of Page, and the API server does not'),
  })
  expect(await fairlead('uninstall', '--crds', '-f', alone)).toMatchObject({ code: 0, stderr: '' })
})

it('is proved by the API server, which then converts with it', async () => {
  const { port } = front.server.address() as { port: number }
  // The API server of this machine has no route to pods.
  const spec = { type: 'ExternalName', externalName: 'localhost', ports: [{ port }] }
  await kubectl(['apply', '-f', '-'], {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'fairlead-webhooks', namespace: NAMESPACE },
    spec,
  })
  // An authority that is due for a change, and a certificate that is not.
  const secrets = new Map<string, KubeObject>()
  for (const days of [3650 - 364, 10]) {
    const { authority, leaf } = webhookCertificates(secrets, new Date(Date.now() - days * DAY_MS))
    for (const one of [authority, leaf]) if (one) secrets.set(one.metadata.name, one)
  }
  for (const secret of secrets.values()) await kube.create(SECRETS, secret)
  const installed = fairlead('install', '-f', file)
  await mount()
  await startWebhook()
  await startWebhook()
  expect(await installed).toMatchObject({ code: 0 })
  expect((await definition()).spec.conversion).toMatchObject({ strategy: 'Webhook' })
  const functions = expect.stringContaining("'system:serviceaccount:fairlead-system:fairlead-page'")
  expect(await kube.get(CONFIGURATION)).toMatchObject({
    webhooks: [{ matchConditions: [{ name: 'changes' }, { expression: functions }] }],
  })
  await kube.create(pathOf('v1'), {
    apiVersion: 'pages.test/v1',
    kind: 'Page',
    metadata: { name: 'a' },
    spec: { http: { url: 'x' }, note: 'n' },
  })
  expect((await kube.get(pathOf('v1beta1', 'a'))).spec).toEqual({ url: 'x' })
  // On a machine whose clock is 200 days late: that of the API server counts.
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 200 * DAY_MS })
  const again = await fairlead('install', '-f', file)
  vi.useRealTimers()
  expect(again).toMatchObject({
    code: 0,
    stdout: expect.not.stringContaining('configured'),
  })
})

it('a watch of an old client sees what a new one writes, and a new one what an old one writes', async () => {
  const seen: unknown[] = []
  const stop = new AbortController()
  const watching = (async () => {
    const { metadata } = await kube.get(pathOf('v1beta1'))
    for await (const { object } of kube.watch(pathOf('v1beta1'), {
      resourceVersion: metadata.resourceVersion,
      signal: stop.signal,
    }))
      seen.push((object as KubeObject).spec)
  })().catch(() => undefined)
  await kube.patch(pathOf('v1', 'a'), { spec: { http: { url: 'y' } } }, 'merge')
  await kube.patch(pathOf('v1beta1', 'a'), { spec: { url: 'x' } }, 'merge')
  await until(() => seen.length >= 2)
  stop.abort()
  await watching
  expect(seen).toEqual([{ url: 'y' }, { url: 'x' }])
  expect((await kube.get(pathOf('v1', 'a'))).spec).toEqual({ http: { url: 'x' }, note: 'n' })
})

it('refuses nothing while its authority changes', async () => {
  // The pods are late: they have the certificate of the authority before this one.
  const before = (await secretOf('fairlead-webhooks-ca')).data
  expect(before['cross.crt']).toBeDefined()
  // The key is lost, so that nothing signs the next authority: only the order of the steps is left.
  await damage('fairlead-webhooks-ca')
  const { reads, failures } = await whileReading(async () => {
    expect(await fairlead('install', '--only-conversions', '-f', file)).toMatchObject({ code: 0 })
    await mount()
    await Promise.all(processes.map((one) => one.logged(({ msg }) => msg.includes('another certificate'))))
  })
  expect(failures.join('\n')).toBe('')
  console.info(`${reads} reads while the authority changed`)
  const after = (await secretOf('fairlead-webhooks-ca')).data
  expect(after['tls.crt']).not.toBe(before['tls.crt'])
  expect((await definition()).spec.conversion).toMatchObject({
    webhook: { clientConfig: { caBundle: after['ca.crt'] } },
  })
})

it('is trusted by the authority of the later one of two installations', async () => {
  let second: Promise<unknown> | undefined
  const first: KubeClient = {
    ...kube,
    // It has read the Secret of the authority, and changes definitions after the other one.
    async *list<T>(...args: Parameters<KubeClient['list']>) {
      second ??= damage('fairlead-webhooks-ca').then(() => certifiedWebhook(kube))
      await second
      yield* kube.list<T>(...args)
    },
  }
  const { client } = await certifiedWebhook(first)
  const { 'ca.crt': caBundle } = (await secretOf('fairlead-webhooks-ca')).data
  expect(client.caBundle).toBe(caBundle)
  expect((await definition()).spec.conversion).toMatchObject({ webhook: { clientConfig: { caBundle } } })
  await mount()
  await until(async () => (await kube.get(pathOf('v1beta1', 'a')).catch(() => undefined)) !== undefined)
})

it('is kept by a CronJob, whose rights suffice for that and for nothing else', async () => {
  const generated = await fairlead('generate', 'webhook', '-f', file, '--module', file, '--image', 'x@sha256:0')
  const objects = parseAllDocuments(generated.stdout).map((one) => one.toJS() as KubeObject)
  expect(objects.map(({ kind }) => kind)).toEqual(KINDS)
  const [own] = objects.filter(({ kind }) => kind === 'Deployment')
  expect(JSON.stringify(own)).not.toContain('serviceAccountName')
  const [policy] = objects.filter(({ kind }) => kind === 'NetworkPolicy')
  expect(JSON.stringify(own)).toContain('"prometheus.io/port":"8080"')
  expect(JSON.stringify(policy)).toContain('"port":8080')
  // The Service is that of this test.
  for (const object of objects.filter(({ kind }) => kind !== 'Service')) await kubectl(['apply', '-f', '-'], object)
  const keeper = { namespace: NAMESPACE, name: 'fairlead-webhooks-keeper' }
  const KUBECONFIG = await kubeconfigOf(kube, cluster.kubeconfig, keeper)
  const as = (...args: string[]) => command(args, { KUBECONFIG, LOG_LEVEL: 'silent' })
  const [cron] = objects.filter(({ kind }) => kind === 'CronJob') as unknown as CronJob[]
  const [{ args }] = cron!.spec.jobTemplate.spec.template.spec.containers
  const forbidden = { code: 3, stderr: expect.stringContaining('forbidden') }
  // The definition of another release than that of the image, and an authority that has to change.
  const { versions } = (await definition()).spec
  const unserved = versions.map((one) => ({ ...one, served: one.storage }))
  await kube.patch(CRD, { spec: { versions: unserved } }, 'merge')
  await damage('fairlead-webhooks-ca')
  expect(await as(...args)).toMatchObject({ code: 0, stdout: expect.stringMatching(/configured[^]*configured/) })
  const { spec } = await definition()
  expect(spec.versions).toEqual(unserved)
  const { 'ca.crt': caBundle } = (await secretOf('fairlead-webhooks-ca')).data
  expect(spec.conversion).toMatchObject({ webhook: { clientConfig: { caBundle } } })
  expect(await kube.get(CONFIGURATION)).toMatchObject({ webhooks: [{ clientConfig: { caBundle } }] })
  // One definition may not be changed: the former authority signs the new one, so that the certificate is renewed.
  await kube.create(CRDS, foreign(await definition()))
  const due = webhookCertificates(new Map(), new Date(Date.now() - (3650 - 364) * DAY_MS))
  for (const { metadata, data } of [due.authority, due.leaf] as TlsSecret[])
    await kube.patch(`${SECRETS}/${metadata.name}`, { data }, 'merge')
  expect(await as(...args)).toMatchObject({
    code: 3,
    stderr: expect.stringContaining('"others.pages.test" is forbidden'),
  })
  const [leaf, authority] = await Promise.all(['tls', 'ca'].map((name) => secretOf(`fairlead-webhooks-${name}`)))
  expect(leaf?.data['ca.crt']).toBe(authority?.data['ca.crt'])
  await kube.delete(`${CRDS}/others.pages.test`)
  await kube.delete(`${SECRETS}/fairlead-webhooks-tls`)
  expect(await as(...args)).toMatchObject(forbidden)
  expect(await as('install', '-f', file)).toMatchObject(forbidden)
  expect(await as('uninstall', '-f', file)).toMatchObject(forbidden)
  const installed = fairlead('install', '-f', file)
  await until(() =>
    mount().then(
      () => true,
      () => false,
    ),
  )
  expect(await installed).toMatchObject({ code: 0 })
})

it('refuses only what is in flight when one of two processes is killed, and nothing when one is stopped', async () => {
  const [killed] = processes
  const [port = 0] = front.ports
  let endedBefore = 0
  const { reads, failures } = await whileReading(async () => {
    await sleep(300)
    endedBefore = front.ended.get(port) ?? 0
    killed?.kill('SIGKILL')
    await killed?.exited
    await sleep(1500)
  })
  front.ports.shift()
  // A connection has one request at a time.
  const broken = (front.ended.get(port) ?? 0) - endedBefore
  console.info(`${failures.length} of ${reads} reads failed by the end of ${broken} connections`)
  expect(failures.length).toBeLessThanOrEqual(broken)
  expect(reads).toBeGreaterThan(broken)
  const next = await startWebhook()
  const stopped = processes[1]
  expect(
    await whileReading(async () => {
      front.ports.shift()
      stopped?.kill('SIGTERM')
      await stopped?.exited
    }),
  ).toMatchObject({ failures: [] })
  expect((await stopped?.exited)?.code).toBe(0)
  expect(next.pid).toBeGreaterThan(0)
})

it('has a certificate that is renewed also where the definitions are wrong', async () => {
  await writeFile(other, modules('remark'))
  await damage('fairlead-webhooks-tls')
  const before = (await secretOf('fairlead-webhooks-tls')).data
  expect(await fairlead('install', '--only-conversions', '-f', other)).toMatchObject({
    ...REFUSED,
    stderr: expect.stringContaining('spec.note'),
  })
  expect((await secretOf('fairlead-webhooks-tls')).data['tls.key']).not.toBe(before['tls.key'])
})

it('is asked about writes as long as the functions have validate', async () => {
  const lenient = join(dir, 'lenient.ts')
  await writeFile(lenient, modules('note', ''))
  expect(await fairlead('install', '-f', lenient)).toMatchObject({ code: 0 })
  await expect(kube.get(CONFIGURATION)).rejects.toThrow('not found')
  expect(await fairlead('install', '--only-conversions', '-f', file)).toMatchObject({ code: 0 })
  const { 'ca.crt': caBundle } = (await secretOf('fairlead-webhooks-ca')).data
  expect(await kube.get(CONFIGURATION)).toMatchObject({ webhooks: [{ clientConfig: { caBundle } }] })
  expect(await fairlead('install', '--only-conversions', '-f', lenient)).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/WebhookConfiguration +fairlead-pages.pages.test +deleted/),
  })
  await expect(kube.get(CONFIGURATION)).rejects.toThrow('not found')
  expect(await fairlead('install', '--only-conversions', '-f', file)).toMatchObject({ code: 0 })
})

it('is missed by name where another project has taken its place', async () => {
  const second = join(dir, 'second.ts')
  const alone = modules('note').replace(/served: .*/, '')
  await writeFile(second, alone.replaceAll('pages', 'notes').replaceAll('page', 'note'))
  const before = front.ports
  front.ports = []
  const replacement = await startWebhook(second)
  const missed = 'asks the webhook about pages.pages.test, fairlead-pages.pages.test, which it does not have'
  expect(await fairlead('install', '-f', second)).toMatchObject({ code: 0, stderr: expect.stringContaining(missed) })
  expect(await fairlead('install', '--only-conversions')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(missed),
  })
  const { stdout } = await fairlead('explain', 'pages.pages.test/a', '-o', 'json')
  const { findings } = JSON.parse(stdout) as { findings: { reason: string; message: string }[] }
  expect(findings).toEqual(
    expect.arrayContaining(
      [
        { reason: 'VersionUnreadable', message: expect.stringMatching(/^clients of v1beta1 .*this process converts/) },
        { reason: 'ChangesRefused', message: expect.stringContaining('it does not have pages.pages.test') },
      ].map((one) => expect.objectContaining(one)),
    ),
  )
  expect((await fairlead('uninstall', '--crds', '-f', second)).stderr).toContain('leave the webhook where it is')
  front.ports = before
  replacement.kill('SIGTERM')
  await replacement.exited
})

it('refuses nothing of before: the installation of a stricter validate names the stored objects that it refuses', async () => {
  const strict = join(dir, 'strict.ts')
  const odd = "[{ path: '.spec.note', message: 'it is odd' }]"
  await writeFile(strict, modules('note', `validate: ({ spec }) => (spec.note === 'n' ? ${odd} : []),`))
  expect(await fairlead('install', '-f', strict)).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('not called for 1 Page that are refused, until they are mended: default/a'),
  })
  expect((await fairlead('install', '-f', file)).stderr).not.toContain('default/a')
})

it('is not asked about writes of the functions of the resource, as long as they are installed', async () => {
  const extra = join(dir, 'extra.ts')
  await writeFile(
    extra,
    modules('note').replace("page = reconciler({ name: 'page'", "extra = reconciler({ name: 'extra'"),
  )
  const accounts = async () => JSON.stringify(await kube.get(CONFIGURATION)).match(/fairlead-system:fairlead-\w+/g)
  const [page, other] = ['page', 'extra'].map((name) => `fairlead-system:fairlead-${name}`)
  expect(await fairlead('install', '-f', extra)).toMatchObject({ code: 0 })
  expect(await accounts()).toEqual([other, page])
  expect(await fairlead('uninstall', '-f', extra)).toMatchObject({ code: 1 })
  expect(await accounts()).toEqual([page])
})

it('is waited for while it has another version of the resources than the installation', async () => {
  await using waiting = startFairlead(['install', '--force', '-f', other], { KUBECONFIG: cluster.kubeconfig })
  await waiting.logged(({ msg }) => msg.includes('it has other versions or checks of pages.pages.test'))
  expect(JSON.stringify(await definition())).not.toContain('remark')
})

async function removals() {
  const { stdout, ...ended } = await fairlead('uninstall', '-f', file, '-o', 'json')
  return { ...ended, ...(JSON.parse(stdout) as object) }
}

it('is not needed any more after an uninstallation', async () => {
  const owner = {
    apiVersion: 'pages.test/v1beta1',
    kind: 'Page',
    name: 'a',
    uid: (await kube.get(pathOf('v1', 'a'))).metadata.uid,
  }
  const owned = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'owned', ownerReferences: [owner] } }
  await kubectl(['apply', '-n', 'default', '-f', '-'], owned)
  await kube.patch(pathOf('v1beta1', 'a'), { metadata: { labels: { by: 'old' } } }, 'merge')
  await kube.create(CONFIGURATIONS, configuration)
  await kube.patch(`${CRD}/status`, { status: { storedVersions: ['v1beta1', 'v1'] } }, 'merge')
  expect(await fairlead('uninstall', '-f', file)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('leave the webhook where it is: pages.pages.test, by-hand.pages.test need it'),
  })
  await expect(kube.get(CONFIGURATION)).rejects.toThrow('not found')
  await kube.patch(`${CRD}/status`, { status: { storedVersions: ['v1'] } }, 'merge')
  // It may be gone too early.
  for (const one of processes) one.kill('SIGKILL')
  for (const one of processes) await one.exited
  expect(await removals()).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`leave the webhook where it is: ${configuration.metadata.name} need it`),
    removals: expect.arrayContaining([expect.objectContaining({ name: 'pages.pages.test', result: 'detached' })]),
  })
  // The garbage collector knows no other version by now.
  expect((await kube.get('/api/v1/namespaces/default/configmaps/owned')).metadata.ownerReferences).toMatchObject([
    { apiVersion: 'pages.test/v1', name: 'a' },
  ])
  await kube.delete(`${CONFIGURATIONS}/${configuration.metadata.name}`)
  expect(await removals()).toMatchObject({
    code: 0,
    removals: expect.arrayContaining([expect.objectContaining({ name: 'fairlead-webhooks-ca', result: 'deleted' })]),
  })
  const { spec } = await definition()
  expect([spec.conversion?.strategy, spec.versions.map(({ name, served }) => [name, served])]).toEqual([
    'None',
    [
      ['v1', true],
      ['v1beta1', false],
    ],
  ])
  await until(async () => (await kube.get(pathOf('v1', 'a'))).spec !== undefined)
  expect((await kube.get(pathOf('v1', 'a'))).spec).toEqual({ http: { url: 'x' }, note: 'n' })
  // Managers keep what they have, though no other version converts.
  const body = { apiVersion: 'pages.test/v1', kind: 'Page', metadata: { name: 'a', labels: { by: 'new' } } }
  await expect(kube.apply(pathOf('v1', 'a'), body, { fieldManager: 'another' })).rejects.toThrow('conflict with "test"')
})
