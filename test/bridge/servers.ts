import { startTestCluster, startTestNats } from '../support/servers.ts'
import { installReconcilers, kubeClientOf } from './world.ts'

export type Servers = Awaited<ReturnType<typeof startServers>>

/** An API server that knows Reconcilers, with a client that may do anything, and NATS. */
export async function startServers({ replicas = 1 }: { replicas?: 1 | 3 } = {}) {
  await using started = new AsyncDisposableStack()
  const [cluster, nats] = await Promise.all([startTestCluster(), startTestNats({ replicas })])
  started.use(cluster)
  started.use(nats)
  const kube = started.use(await kubeClientOf(cluster.kubeconfig))
  await installReconcilers(kube)
  const kept = started.move()
  return { cluster, nats, kube, [Symbol.asyncDispose]: () => kept.disposeAsync() }
}
