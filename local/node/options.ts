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
