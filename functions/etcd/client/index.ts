export { type Etcd, type EtcdEndpoint, EtcdError, type EtcdTls, GRPC, openEtcd } from './client.ts'
export { ALARMS, type EtcdMember, type EtcdStatus } from './messages.ts'
