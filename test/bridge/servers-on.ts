import type { Cluster } from '#lab'
import { startTestNats } from '../support/servers.ts'
import { installReconcilers, kubeClientOf } from './world.ts'

export type Servers = Awaited<ReturnType<typeof serversOn>>

/** That API server, which then knows Reconcilers, with a client that may do anything, and NATS. */
export async function serversOn(starting: Promise<Cluster & AsyncDisposable>) {
  await using started = new AsyncDisposableStack()
  const [cluster, nats] = await Promise.all([starting, startTestNats()])
  started.use(cluster)
  started.use(nats)
  const kube = started.use(await kubeClientOf(cluster.kubeconfig))
  await installReconcilers(kube)
  const kept = started.move()
  return { cluster, nats, kube, [Symbol.asyncDispose]: () => kept.disposeAsync() }
}
