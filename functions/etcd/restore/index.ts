export { agentImage } from '../backup/index.ts'
export { recoverContainer, restoreContainer, type SeedData, type SeedParts } from './container.ts'
export { etcdRestore, tooNew } from './etcd-restore.ts'
export { EtcdRestore, type RestoreObject } from './resource.ts'
