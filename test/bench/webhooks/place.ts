import { fork } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { connect } from 'node:tls'
import { fileURLToPath } from 'node:url'
import type { KubeObject } from '#contracts'
import { createKubeClient, type KubeClient, loadKubeConfig } from '#kube'
import type { ConversionClient } from '#sdk'
import type { TlsSecret } from '../../../cli/install/certificates.ts'
import { webhookCertificates } from '../../../cli/install/webhook-certificates.ts'
import { freePorts } from '../../../packages/lab/ports.ts'
import { fairlead, LEASHED } from '../../support/fairlead.ts'
import { startTestCluster } from '../../support/servers.ts'
import { until } from '../../support/wait.ts'
import type { OperatorProcess } from '../beside/process.ts'

const SYSTEM = 'fairlead-system'
const SERVICE = 'fairlead-webhooks'
const SECRETS = `/api/v1/namespaces/${SYSTEM}/secrets`
const LEAF = `${SERVICE}-tls`
const AUTHORITY = `${SERVICE}-ca`
/** What a Secret takes to the pods, at best. */
export const KUBELET_MS = 1000
/** Endpoints of a Service have a pod that ends for so long. */
const ENDPOINTS_MS = 1000
const READY_MS = 10_000
/** Processes look for another certificate every 10 s. */
export const USED_MS = 12_000

/** An API server that calls webhooks at a port of this machine, and a folder with their certificate, as pods have it. */
export interface WebhookPlace extends AsyncDisposable {
  kube: KubeClient
  kubeconfig: string
  /** tls.crt and tls.key, as pods have them. */
  certificates: string
  /** Where the API server calls the webhook. */
  port: number
  /** The address in definitions and configurations that do not come from `fairlead install`. */
  client: (path: string) => ConversionClient
  /** The API server ends as by SIGTERM or SIGKILL, starts again, and is ready. */
  restartApiServer: (signal: 'SIGTERM' | 'SIGKILL') => Promise<void>
  /** Resolves when the API server is ready, as whatever stands before several of them sees it. */
  answers: () => Promise<unknown>
  /** `fairlead …`, to its end. Throws an Error if it fails. */
  run: (...args: string[]) => Promise<string>
}

/** The API server has a Service for the webhook, and Secrets with certificates for it that pods have already. */
export async function openPlace(): Promise<WebhookPlace> {
  await using stack = new AsyncDisposableStack()
  const dir = await mkdtemp(join(tmpdir(), 'webhooks-'))
  stack.defer(() => rm(dir, { recursive: true, force: true }))
  const cluster = stack.use(await startTestCluster({ isLarge: true }))
  const { kubeconfig, processes } = cluster
  const access = await loadKubeConfig({ paths: [kubeconfig] })
  const kube = stack.use(createKubeClient({ ...access, userAgent: 'bench', maxSockets: 64, timeoutMs: 60_000 }))
  const [port = 0] = await freePorts(1)
  await kube.create('/api/v1/namespaces', { metadata: { name: SYSTEM } })
  // The API server of this machine has no route to pods.
  const spec = { type: 'ExternalName', externalName: 'localhost', ports: [{ port }] }
  await kube.create(`/api/v1/namespaces/${SYSTEM}/services`, { metadata: { name: SERVICE }, spec })
  const { authority, leaf } = webhookCertificates(new Map(), new Date())
  for (const one of [authority, leaf]) if (one) await kube.create(SECRETS, one)
  if (leaf) await mount(dir, leaf)
  const isReady = async () => (await kube.text('/readyz', { timeoutMs: READY_MS })) === 'ok'
  const answers = shared(() => until(isReady, { leastMs: 200, what: 'the API server is ready' }))
  const all = stack.move()
  return {
    kube,
    kubeconfig,
    certificates: dir,
    port,
    client: (path) => ({
      caBundle: leaf?.data['ca.crt'] ?? '',
      service: { namespace: SYSTEM, name: SERVICE, path, port },
    }),
    async restartApiServer(signal) {
      const before = processes.get('kube-apiserver')
      processes.signal('kube-apiserver', signal)
      await before?.exited
      await processes.restart('kube-apiserver')
      await answers()
    },
    answers,
    async run(...args) {
      const { code, stdout, stderr } = await fairlead(args, { KUBECONFIG: kubeconfig, LOG_LEVEL: 'silent' })
      if (code !== 0) throw new Error(`fairlead ${args.join(' ')}: ${stderr}`)
      return stdout
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  }
}

/** Whoever asks while a question is open gets its answer. */
function shared<T>(ask: () => Promise<T>): () => Promise<T> {
  let open: Promise<T> | undefined
  return () => (open ??= ask().finally(() => (open = undefined)))
}

/** As the kubelet: brings a Secret to the pods. */
export async function mount(dir: string, { data }: Pick<TlsSecret, 'data'>): Promise<void> {
  for (const name of ['tls.crt', 'tls.key'] as const)
    await writeFile(join(dir, name), Buffer.from(data[name], 'base64'))
}

/**
 * The key of the authority is lost, or that of the certificate: the keeper of the webhook renews it, and all that depends on
 * it. Resolves when pods have the certificate and use it.
 */
export async function rotate(
  { kube, certificates, run }: Pick<WebhookPlace, 'kube' | 'certificates' | 'run'>,
  what: 'authority' | 'leaf',
): Promise<void> {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const key = Buffer.from(privateKey.export({ type: 'pkcs8', format: 'pem' })).toString('base64')
  const lost = what === 'authority' ? AUTHORITY : LEAF
  await kube.patch(`${SECRETS}/${lost}`, { data: { 'tls.key': key } }, 'merge')
  await run('install', '--only-conversions')
  await sleep(KUBELET_MS)
  await mount(certificates, await kube.get<KubeObject & Pick<TlsSecret, 'data'>>(`${SECRETS}/${LEAF}`))
  await sleep(USED_MS)
}

/** The processes of a webhook: one at the port itself, or several behind a Service. */
export class Replicas implements AsyncDisposable {
  readonly #place: Pick<WebhookPlace, 'port'>
  readonly #start: (port: number) => OperatorProcess
  readonly #running = new Map<number, OperatorProcess>()
  #front: ReturnType<typeof fork> | undefined

  constructor(place: Pick<WebhookPlace, 'port'>, start: (port: number) => OperatorProcess) {
    this.#place = place
    this.#start = start
  }

  get processes(): OperatorProcess[] {
    return [...this.#running.values()]
  }

  /** One process that the API server calls without anything between. */
  async alone(): Promise<OperatorProcess> {
    await this[Symbol.asyncDispose]()
    return this.#begin(this.#place.port)
  }

  async behindService(count: number): Promise<void> {
    await this[Symbol.asyncDispose]()
    const path = fileURLToPath(new URL('./front.ts', import.meta.url))
    this.#front = fork(path, [String(this.#place.port)], { execArgv: LEASHED })
    await once(this.#front, 'message')
    for (let index = 0; index < count; index++) await this.add()
  }

  /** One more process, which gets connections when it accepts them. */
  async add(): Promise<void> {
    const [port = 0] = await freePorts(1)
    await this.#begin(port)
    await this.#route()
  }

  /** A rolling update: for each process another one comes, and it ends by SIGTERM. The Service knows that a second later. */
  async replaceAll(): Promise<void> {
    const ending: Promise<unknown>[] = []
    const before = this.#running.entries().toArray()
    for (const [port, old] of before) {
      await this.add()
      old.kill('SIGTERM')
      ending.push(old.exited)
      await sleep(ENDPOINTS_MS)
      this.#running.delete(port)
      await this.#route()
    }
    await Promise.all(ending)
  }

  /** kill -9 of one process, or of all. The Service knows it at once: only calls in flight are lost. */
  async kill(count = 1): Promise<void> {
    const victims = [...this.#running].slice(0, count)
    for (const [port] of victims) this.#running.delete(port)
    await this.#route()
    for (const [, one] of victims) one.kill('SIGKILL')
    await Promise.all(victims.map(([, one]) => one.exited))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const one of this.processes) one.kill('SIGKILL')
    await Promise.all(this.processes.map((one) => one.exited))
    this.#running.clear()
    const front = this.#front
    this.#front = undefined
    if (front === undefined) return
    front.kill('SIGKILL')
    await once(front, 'exit')
  }

  async #begin(port: number): Promise<OperatorProcess> {
    const started = this.#start(port)
    let hasEnded = false
    void started.exited.then(() => (hasEnded = true))
    const unless = () => {
      if (hasEnded) throw new Error('the process of a webhook has ended')
    }
    await until(() => accepts(port), { unless, what: 'the webhook accepts connections' })
    this.#running.set(port, started)
    return started
  }

  async #route(): Promise<void> {
    if (this.#front === undefined) return
    this.#front.send([...this.#running.keys()])
    await once(this.#front, 'message')
  }
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false })
  try {
    await once(socket, 'secureConnect')
    return true
  } finally {
    socket.destroy()
  }
}
