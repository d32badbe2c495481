export { issueFrom, newAuthority, type Signed } from '#pki'
export type { AuditedRequest } from './audit.ts'
export type { BinaryName } from './binaries.ts'
export {
  apiServerBinaries,
  controlPlaneBinaries,
  etcdTools,
  kwokBinaries,
  natsBinaries,
  nodeBinaries,
  serviceBinaries,
  toolBinaries,
} from './binaries.ts'
export { type BinaryPaths, type BuildOptions, cacheDir, ensureBinaries } from './build.ts'
export { type ClusterOptions, isBuilt, startCluster } from './cluster.ts'
export {
  asFailingShell,
  asShellExports,
  type DevelopmentOptions,
  defaultClusterDir,
  developmentEnvironment,
  type ExistingServers,
  ensureDevelopmentCluster,
  existingServers,
} from './development.ts'
export { type Nats, type NatsOptions, startNats } from './nats.ts'
export { addImage, buildImage, type ImageFiles, type ImageSource, NoNodeError } from './node/index.ts'
export { chooseNode, type NodeChoice, type WantedNode } from './node-choice.ts'
export { type Cluster, openCluster } from './open-cluster.ts'
export { portIfFree, releasePorts } from './ports.ts'
export { type ManagedProcess, ProcessGroup, type ProcessSpec } from './processes.ts'
export { type Progress, plainProgress, progressOn, silentProgress, type Task, withTask } from './progress.ts'
export { type ClusterState, type ClusterStatus, clusterStatus, type NatsServer, type NodeKind } from './state.ts'
export { stopCluster } from './stop.ts'
