export { clusterId, openKube } from './kube.ts'
