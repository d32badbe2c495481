export { restoreContainer, type SeedData } from './container.ts'
export { etcdRestore } from './etcd-restore.ts'
export { EtcdRestore, type RestoreObject } from './resource.ts'
