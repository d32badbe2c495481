import { resolve } from 'node:path'
import { type AuditedRequest, readAudit } from './audit.ts'
import { apiServerReady, probeOf } from './control-plane.ts'
import { type Nats, natsOf } from './nats.ts'
import { ProcessGroup } from './processes.ts'
import { type NodeKind, readState } from './state.ts'
import { stopCluster } from './stop.ts'

export interface Cluster {
  dir: string
  /** The kubeconfig of an administrator. */
  kubeconfig: string
  /** URL. */
  apiServer: string
  nats: Nats | undefined
  node: NodeKind
  /** The registry of a real node: addImage() adds images. */
  registryUrl: string | undefined
  processes: ProcessGroup
  /** Kills one server if it runs; then as {@link recover}. */
  restart(name: string): Promise<void>
  /** Restarts every dead server with its port and data, and resolves when they serve. */
  recover(): Promise<void>
  /** Resolves when kube-apiserver accepts requests. */
  ready(): Promise<void>
  /**
   * Returns all writes so far, and all requests of Fairlead's accounts, from the API server's log. Needs a cluster that
   * was started with `audit`.
   */
  audit(): Promise<AuditedRequest[]>
  stop(): Promise<void>
}

/** Opens the cluster in that folder, which any process may have started. */
export function openCluster(folder: string): Cluster {
  const dir = resolve(folder)
  const state = readState(dir)
  if (!state) throw new Error(`no cluster was started in ${dir}, or its start did not come to its end`)
  const { kubeconfig, apiServer, node, registryUrl, natsServers } = state
  const processes = new ProcessGroup(dir)
  const nats = natsServers && natsOf(processes, natsServers)
  const probe = probeOf(dir, apiServer)
  const ready = (): Promise<void> => apiServerReady(processes, probe)
  const recover = (): Promise<void> => startTheDead(processes, ready, nats)
  return {
    dir,
    kubeconfig,
    apiServer,
    nats,
    node,
    registryUrl,
    processes,
    ready,
    recover,
    async restart(name) {
      await processes.kill(name)
      await recover()
    },
    audit: () => readAudit(dir),
    stop: () => stopCluster(dir),
  }
}

/** Servers that must run first: the others exit without an API server. */
const FIRST_OF_ALL = ['etcd', 'kube-apiserver']

async function startTheDead(
  processes: ProcessGroup,
  ready: () => Promise<void>,
  nats: Nats | undefined,
): Promise<void> {
  const dead = processes.names().filter((name) => !processes.get(name)?.alive())
  for (const name of FIRST_OF_ALL.filter((name) => dead.includes(name))) await processes.restart(name)
  await ready()
  await Promise.all(dead.filter((name) => !FIRST_OF_ALL.includes(name)).map((name) => processes.restart(name)))
  await nats?.ready()
}
