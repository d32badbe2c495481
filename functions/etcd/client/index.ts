export { type Etcd, openEtcd } from './client.ts'
export type { EtcdEndpoint, EtcdTls } from './connection.ts'
export { EtcdError, GRPC } from './errors.ts'
export { ALARMS, type EtcdMember, type EtcdStatus } from './messages.ts'
