export {
  CLUSTER_DOMAIN,
  DNS_SERVICE_IP,
  KUBERNETES_SERVICE_IP,
  KWOK_NODE_NAME,
  NODE_IP,
  NODE_NAME,
  SERVICE_CIDR,
} from './addresses.ts'
export { NodeTakenError } from './claim.ts'
export { stopNode } from './cleanup.ts'
export type { ImageConfig, ImageFiles, ImageSource } from './image.ts'
export { addImage } from './image-push.ts'
export { startKwok } from './kwok.ts'
export { type Node, type PreparedNode, prepareNode, startNode } from './node.ts'
export type { NodeOptions } from './options.ts'
export { installRequirements, type NodeRequirements, nodeRequirements } from './requirements.ts'
