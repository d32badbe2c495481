import { createHash } from 'node:crypto'
import { resolve } from 'node:path'
import type { BinaryPaths } from '../build.ts'
import type { Pki } from '../pki.ts'
import type { ProcessGroup } from '../processes.ts'
import type { Progress } from '../progress.ts'

export interface NodeOptions {
  /** The cluster's folder. */
  dir: string
  processes: ProcessGroup
  pki: Pki
  /** The address at which pods and the node's programs reach the API server. */
  apiServer: { host: string; port: number }
  /** The kubeconfig of a cluster administrator. */
  kubeconfig: string
  binaries: BinaryPaths
  progress: Progress
  /** Whether kube-proxy and DNS run. */
  hasServices: boolean
  /** The node is unused after this process has ended, even after a crash; the next start of a node removes it. */
  ephemeral?: boolean
}

/** The paths that the node of one cluster folder uses on this machine. stopNode() removes all of them. */
export interface NodePaths {
  /** `fairlead-<hash of the folder>`: also the name of its cgroup. */
  id: string
  /** A short path on /run, since the path of a unix socket has 107 bytes at most. */
  run: string
  /** On disk: images, layers, volumes, the pods' logs. */
  state: string
  containerdSocket: string
  /** One folder per pod, with the output of its containers. */
  podLogs: string
}

export function nodePaths(dir: string): NodePaths {
  return pathsOf(`fairlead-${createHash('sha256').update(resolve(dir)).digest('hex').slice(0, 10)}`)
}

/** The form of `id`. */
export const NODE_ID = /^fairlead-[0-9a-f]{10}$/

export function pathsOf(id: string): NodePaths {
  const run = `/run/${id}`
  const state = `/var/lib/${id}`
  return { id, run, state, containerdSocket: `${run}/containerd.sock`, podLogs: `${state}/podlogs` }
}

/** The names of the node that runs pods, and of the simulated node. */
export const NODE_NAME = 'fairlead-node'
export const KWOK_NODE_NAME = 'fairlead-kwok'

/**
 * The node's address, on a link of its own: the API server, the registry and DNS listen here, so that pods reach them.
 * It exists from prepareNode() to stopNode().
 */
export const NODE_IP = '10.246.1.1'
export const NODE_LINK = 'fairlead0'

/** NETWORK_CIDR contains NODE_IP and the pods, but not the services. */
export const NETWORK_CIDR = '10.246.0.0/16'
export const POD_CIDR = '10.246.0.0/24'
export const SERVICE_CIDR = '10.98.0.0/16'
/** The cluster IP of the service `kubernetes`: the API server assigns the first address of SERVICE_CIDR. */
export const KUBERNETES_SERVICE_IP = '10.98.0.1'
export const DNS_SERVICE_IP = '10.98.0.10'
export const CLUSTER_DOMAIN = 'cluster.local'
