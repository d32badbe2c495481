export { etcdBackup } from './backup/index.ts'
export { etcd } from './operator/index.ts'
export { etcdRestore } from './restore/index.ts'
