import type { BinaryPaths } from '../build.ts'
import type { Pki } from '../pki.ts'
import type { ProcessGroup } from '../processes.ts'
import type { Progress } from '../progress.ts'

export interface NodeOptions {
  /** The cluster's folder. */
  dir: string
  processes: ProcessGroup
  pki: Pki
  /** As pods and the node's programs reach it. */
  apiServer: { host: string; port: number }
  /** Of a cluster administrator. */
  kubeconfig: string
  binaries: BinaryPaths
  progress: Progress
  /** kube-proxy and DNS. */
  hasServices: boolean
  /** The node is of no use when this process has ended, however it ended: the next one to start a node clears it away. */
  ephemeral?: boolean
}
