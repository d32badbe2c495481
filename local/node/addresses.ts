/** The names of the node that runs pods, and of the simulated node. */
export const NODE_NAME = 'fairlead-node'
export const KWOK_NODE_NAME = 'fairlead-kwok'

/**
 * The node's address, on a link of its own: the API server, the registry and DNS listen here, so that pods reach them.
 * It exists from prepareNode() to stopNode().
 */
export const NODE_IP = '10.246.1.1'
export const NODE_LINK = 'fairlead0'

/** NETWORK_CIDR contains NODE_IP and the pods, but not the services. */
export const NETWORK_CIDR = '10.246.0.0/16'
export const POD_CIDR = '10.246.0.0/24'
export const SERVICE_CIDR = '10.98.0.0/16'
/** The cluster IP of the service `kubernetes`: the API server assigns the first address of SERVICE_CIDR. */
export const KUBERNETES_SERVICE_IP = '10.98.0.1'
export const DNS_SERVICE_IP = '10.98.0.10'
export const CLUSTER_DOMAIN = 'cluster.local'
