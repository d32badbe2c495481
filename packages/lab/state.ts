import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { ProcessGroup } from './processes.ts'

/** One nats-server of a cluster and its ports. */
export interface NatsServer {
  name: string
  port: number
  monitoringPort: number
  clusterPort: number
}

export type NodeKind = 'none' | 'real' | 'kwok'

/** The data that other processes need to use a cluster; in DIR/cluster.json as soon as the cluster is ready. */
export interface ClusterState {
  kubeconfig: string
  apiServer: string
  node: NodeKind
  registryUrl?: string
  natsUrl?: string
  natsServers?: NatsServer[]
  startedAt: string
}

export interface ClusterStatus {
  dir: string
  /** All servers run, and the start has finished. */
  running: boolean
  state?: ClusterState
  processes: { name: string; pid: number; alive: boolean; log: string }[]
}

export function stateFile(dir: string): string {
  return join(dir, 'cluster.json')
}

export function writeState(dir: string, state: ClusterState): void {
  writeFileSync(stateFile(dir), `${JSON.stringify(state, null, 2)}\n`)
}

export function readState(dir: string): ClusterState | undefined {
  if (!existsSync(stateFile(dir))) return undefined
  return JSON.parse(readFileSync(stateFile(dir), 'utf8')) as ClusterState
}

export function clusterStatus(dir: string): ClusterStatus {
  const folder = resolve(dir)
  if (!existsSync(join(folder, 'pid'))) return { dir: folder, running: false, processes: [] }
  const group = new ProcessGroup(folder)
  const processes = group.names().map((name) => {
    const found = group.get(name)
    return { name, pid: found?.pid ?? 0, alive: found?.alive() ?? false, log: group.logFile(name) }
  })
  const state = readState(folder)
  const running = state !== undefined && processes.length > 0 && processes.every((found) => found.alive)
  return { dir: folder, running, ...(state ? { state } : {}), processes }
}
