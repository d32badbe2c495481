/** Name of the node that runs pods, and of the one that only pretends to. */
export const NODE_NAME = 'fairlead-node'
export const KWOK_NODE_NAME = 'fairlead-kwok'

/**
 * The node's own address, on a link that no other program uses: the API server, the registry and DNS listen here, so
 * that pods reach them. It exists from prepareNode() to stopNode().
 */
export const NODE_IP = '10.246.1.1'
export const NODE_LINK = 'fairlead0'

/** NODE_IP and the pods lie in NETWORK_CIDR; services do not. */
export const NETWORK_CIDR = '10.246.0.0/16'
export const POD_CIDR = '10.246.0.0/24'
export const SERVICE_CIDR = '10.98.0.0/16'
/** Cluster IP of the `kubernetes` service: the first of SERVICE_CIDR, as the API server takes it. */
export const KUBERNETES_SERVICE_IP = '10.98.0.1'
export const DNS_SERVICE_IP = '10.98.0.10'
export const CLUSTER_DOMAIN = 'cluster.local'
