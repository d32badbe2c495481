export { etcd } from './etcd.ts'
export { EtcdCluster } from './resource.ts'
