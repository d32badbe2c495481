export { type AgentContainer, type AgentPod, agentContainer, agentPod, secretVolume, tryOf } from './agent-pod.ts'
export {
  endingOf,
  endOf,
  failureStatus,
  failuresOf,
  isGivenUp,
  progressOf,
  retryAt,
  runsOf,
  type StoredSnapshot,
} from './agent-runs.ts'
export { etcdBackup } from './etcd-backup.ts'
export { EtcdBackup } from './resource.ts'
export { agentImage, agentServiceAccount, storageType, storeFields, storeRules, storeSource } from './store-spec.ts'
