import { readFile, rename, writeFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:net'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parse, stringify } from 'yaml'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import type { Cluster, Nats } from '#lab'
import { type FairleadProcess, type LogLine, startFairlead } from '../support/fairlead.ts'
import { shortTempDir, startTestNats } from '../support/servers.ts'
import { until } from '../support/wait.ts'
import { Item } from './clusters-functions.ts'

export const MODULE = fileURLToPath(new URL('clusters-functions.ts', import.meta.url))

export interface Listed {
  name: string
  kubeconfig: string
  prefix?: string
  labels?: Record<string, string>
}

interface ItemObject {
  metadata: { name: string }
  spec: { size: number }
  status?: { size: number; at: string }
}

/** One API server, with a client that no fault of the test reaches. */
export class Site {
  readonly cluster: Cluster
  readonly kube: KubeClient

  constructor(cluster: Cluster, kube: KubeClient) {
    this.cluster = cluster
    this.kube = kube
  }

  create(name: string, spec: { size: number; everySeconds?: number }): Promise<unknown> {
    const metadata = { name, namespace: 'default' }
    return this.kube.create(resourcePath(Item, 'default'), {
      apiVersion: `${Item.group}/${Item.version}`,
      kind: Item.kind,
      metadata,
      spec,
    })
  }

  /** Edits the Item, and returns after how many milliseconds its status follows. */
  async edit(name: string, size: number): Promise<number> {
    const path = resourcePath(Item, 'default', name)
    const began = performance.now()
    await this.kube.patch(path, { spec: { size } }, 'merge')
    await until(async () => (await this.kube.get<ItemObject>(path)).status?.size === size, { leastMs: 10 })
    return performance.now() - began
  }

  async items(): Promise<ItemObject[]> {
    return (await this.kube.get<{ items: ItemObject[] }>(resourcePath(Item, 'default'))).items
  }

  async maps(): Promise<string[]> {
    const ref = { group: '', version: 'v1', resource: 'configmaps' }
    const { items } = await this.kube.get<{ items: { metadata: { name: string } }[] }>(resourcePath(ref, 'default'))
    return items.map(({ metadata }) => metadata.name).filter((name) => name !== 'kube-root-ca.crt')
  }

  signal(signal: NodeJS.Signals): void {
    this.cluster.processes.signal('kube-apiserver', signal)
  }
}

type Start = () => Promise<Cluster & AsyncDisposable>

/** Outside of vitest there is nobody to borrow from. */
const borrowed: Start = async () => (await import('../support/borrowed.ts')).borrowCluster()

/** Several API servers, one nats-server, and a file that lists the clusters. */
export async function startSites<const Name extends string>(names: readonly Name[], start = borrowed) {
  await using starting = new AsyncDisposableStack()
  const clusters = await Promise.all(names.map(() => start()))
  for (const cluster of clusters) starting.use(cluster)
  const nats: Nats = starting.use(await startTestNats())
  const dir = await shortTempDir()
  const file = join(dir, 'clusters.yaml')
  const sites = new Map<string, Site>()
  for (const [index, name] of names.entries()) {
    const cluster = clusters[index]
    if (cluster === undefined) throw new Error('a cluster is missing')
    const access = await loadKubeConfig({ paths: [cluster.kubeconfig] })
    const kube = starting.use(createKubeClient({ ...access, userAgent: 'test' }))
    // A server that is stopped cannot be given back.
    starting.defer(async () => {
      cluster.processes.signal('kube-apiserver', 'SIGCONT')
      await cluster.recover()
    })
    sites.set(name, new Site(cluster, kube))
  }
  const owned = starting.move()
  return {
    dir,
    file,
    nats,
    site(name: Name): Site {
      const found = sites.get(name)
      if (found === undefined) throw new Error(`no site ${name}`)
      return found
    },
    /** Replaces the file as the kubelet does: by a rename. */
    async list(clusters: Listed[]): Promise<void> {
      await this.write({ clusters })
    },
    async write(content: object): Promise<void> {
      await writeFile(`${file}.new`, stringify(content))
      await rename(`${file}.new`, file)
    },
    async up(env: Record<string, string> = {}): Promise<Served> {
      const port = await freePort()
      const args = ['up', '--install', '-f', MODULE, '--clusters', file, '--listen', `127.0.0.1:${port}`]
      return new Served(startFairlead(args, { NATS_URL: nats.url, FAIRLEAD_LEASE_SECONDS: '3', ...env }), port)
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

/** A process that serves clusters. */
export class Served implements AsyncDisposable {
  readonly process: FairleadProcess
  readonly #port: number

  constructor(process: FairleadProcess, port: number) {
    this.process = process
    this.#port = port
  }

  /** Resolves with the log line of the nth time that the cluster has this state. */
  async entered(cluster: string, state: string, nth = 1): Promise<LogLine> {
    const isIt = (line: LogLine) => line.msg === 'cluster' && line['cluster'] === cluster && line['state'] === state
    return until(
      () => {
        const found = this.process.logs.filter(isIt)[nth - 1]
        if (found === undefined)
          throw new Error(`${cluster} is not ${state}: ${JSON.stringify(this.process.logs.slice(-3))}`)
        return found
      },
      { what: `${cluster} is ${state}` },
    )
  }

  async get(path: string): Promise<{ code: number; text: string }> {
    const answer = await fetch(`http://127.0.0.1:${this.#port}${path}`, { headers: { connection: 'close' } })
    return { code: answer.status, text: await answer.text() }
  }

  /** The steps of runs in this cluster, with their index in the log. */
  steps(cluster: string): { step: string | undefined; key: string | undefined; index: number }[] {
    return this.process.logs
      .map((line, index) => ({ line, step: line.step, key: line.key, index }))
      .filter(({ line }) => line['cluster'] === cluster && line.msg === 'run')
  }

  /** The keys that had two runs at the same time. */
  doubled(cluster: string): string[] {
    const running = new Set<string>()
    const doubled: string[] = []
    for (const { step, key = '' } of this.steps(cluster)) {
      if (step === 'started' && running.has(key)) doubled.push(key)
      if (step === 'started') running.add(key)
      if (step === 'ended') running.delete(key)
    }
    return doubled
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.process[Symbol.asyncDispose]()
  }
}

export async function freePort(): Promise<number> {
  const server = createServer()
  const port = await listening(server)
  await new Promise((closed) => server.close(closed))
  return port
}

function listening(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      resolve(typeof address === 'object' && address !== null ? address.port : 0)
    })
  })
}

interface KubeConfigFile {
  clusters: { cluster: { server: string } }[]
  users: { user: object }[]
}

/** Writes a copy of the kubeconfig with this server or user. */
export async function changedKubeConfig(
  from: string,
  to: string,
  { server, user }: { server?: string; user?: object },
): Promise<string> {
  const config = parse(await readFile(from, 'utf8')) as KubeConfigFile
  for (const { cluster } of config.clusters) if (server !== undefined) cluster.server = server
  for (const one of config.users) if (user !== undefined) one.user = user
  await writeFile(to, stringify(config))
  return to
}
