import { createHash } from 'node:crypto'
import { resolve } from 'node:path'

/** What the node of one cluster folder calls its own on this machine. All of it is gone after stopNode(). */
export interface NodePaths {
  /** `fairlead-<hash of the folder>`: also the name of its cgroup. */
  id: string
  /** On /run, and short: the path of a unix socket may have 107 bytes. */
  run: string
  /** On disk: images, layers, volumes, the pods' logs. */
  state: string
  containerdSocket: string
  /** One folder for each pod, with the output of its containers. */
  podLogs: string
}

export function nodePaths(dir: string): NodePaths {
  return pathsOf(`fairlead-${createHash('sha256').update(resolve(dir)).digest('hex').slice(0, 10)}`)
}

/** What `id` looks like. */
export const NODE_ID = /^fairlead-[0-9a-f]{10}$/

export function pathsOf(id: string): NodePaths {
  const run = `/run/${id}`
  const state = `/var/lib/${id}`
  return { id, run, state, containerdSocket: `${run}/containerd.sock`, podLogs: `${state}/podlogs` }
}
