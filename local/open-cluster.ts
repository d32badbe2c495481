import { resolve } from 'node:path'
import { apiServerReady, probeOf } from './api-server.ts'
import { type AuditedRequest, readAudit } from './audit.ts'
import { type Nats, natsOf } from './nats.ts'
import { ProcessGroup } from './processes.ts'
import { type NodeKind, readState } from './state.ts'
import { stopCluster } from './stop.ts'

export interface Cluster {
  dir: string
  /** File of an administrator. */
  kubeconfig: string
  /** URL. */
  apiServer: string
  nats: Nats | undefined
  node: NodeKind
  /** Of a real node: addImage() puts images into it. */
  registryUrl: string | undefined
  processes: ProcessGroup
  /** Kills one server if it lives; then as {@link recover}. */
  restart(name: string): Promise<void>
  /** Starts every server that is dead again, on its port and data, and returns when they serve. */
  recover(): Promise<void>
  /** Returns when kube-apiserver takes requests. */
  ready(): Promise<void>
  /** All writes so far, and all requests of Fairlead’s accounts, as the API server logged them; only of one that was started with `audit`. */
  audit(): Promise<AuditedRequest[]>
  stop(): Promise<void>
}

/** The cluster that was started in that folder, by whatever process. */
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

/** The others give up where they find no API server. */
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
