import { createHash } from 'node:crypto'
import { resolve } from 'node:path'

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
