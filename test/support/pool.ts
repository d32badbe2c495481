import { createKubeClient, loadKubeConfig } from '#kube'
import { type Contents, contentsOf, setContents } from './cluster-etcd.ts'
import { startTestCluster } from './servers.ts'
import { until } from './wait.ts'

/** An API server without work takes about as much of a processor in this time as its start. */
const IDLE_MS = 45_000

interface Pooled {
  cluster: Awaited<ReturnType<typeof startTestCluster>>
  contents: Contents
  /** The API groups after the start. */
  groups: string
}

interface Returned {
  /** Undefined: it could not be cleaned, and has ended. */
  clean: Promise<Pooled | undefined>
  expiry: NodeJS.Timeout
}

/**
 * API servers that test files use one after the other, instead of one for each file. Each file finds the objects that an
 * API server has after its start, and no others.
 */
export class ClusterPool {
  readonly #lent = new Map<string, Pooled>()
  readonly #returned = new Set<Returned>()
  readonly #stopping = new Set<Promise<void>>()

  /** Returns the folder of a cluster. */
  async lend(): Promise<string> {
    const pooled = (await this.#reused()) ?? (await start())
    const { dir } = pooled.cluster
    this.#lent.set(dir, pooled)
    return dir
  }

  takeBack(dir: string): void {
    const pooled = this.#lent.get(dir)
    if (pooled === undefined) return
    this.#lent.delete(dir)
    const returned: Returned = {
      clean: clean(pooled).then(
        () => pooled,
        async () => {
          await pooled.cluster.stop()
          return undefined
        },
      ),
      expiry: setTimeout(() => this.#expire(returned), IDLE_MS),
    }
    this.#returned.add(returned)
  }

  async stop(): Promise<void> {
    for (const returned of this.#returned) this.#expire(returned)
    for (const { cluster } of this.#lent.values()) this.#stopping.add(cluster.stop())
    await Promise.all(this.#stopping)
  }

  async #reused(): Promise<Pooled | undefined> {
    for (const returned of this.#returned) {
      this.#returned.delete(returned)
      clearTimeout(returned.expiry)
      const pooled = await returned.clean
      if (pooled !== undefined) return pooled
    }
    return undefined
  }

  #expire(returned: Returned): void {
    clearTimeout(returned.expiry)
    this.#returned.delete(returned)
    this.#stopping.add(returned.clean.then((pooled) => pooled?.cluster.stop()))
  }
}

async function start(): Promise<Pooled> {
  const cluster = await startTestCluster()
  return { cluster, contents: await contentsOf(cluster.dir), groups: await groupsOf(cluster.kubeconfig) }
}

/** Resolves when neither objects nor definitions are left of those that were added. */
async function clean({ cluster, contents, groups }: Pooled): Promise<void> {
  await cluster.recover()
  await setContents(cluster.dir, contents)
  await until(async () => (await groupsOf(cluster.kubeconfig)) === groups, { what: 'added API groups are gone' })
}

async function groupsOf(kubeconfig: string): Promise<string> {
  await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [kubeconfig] })), userAgent: 'test' })
  const { groups } = await kube.get<{ groups: { name: string }[] }>('/apis')
  return groups
    .map(({ name }) => name)
    .sort()
    .join()
}
