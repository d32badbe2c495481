import { writeFile } from 'node:fs/promises'
import type { KubeObject } from '#contracts'
import { NODE_IP, NODE_NAME, POD_CIDR } from './addresses.ts'
import type { NodeOptions } from './options.ts'
import type { NodePaths } from './paths.ts'

interface ProxyPorts {
  health: number
  metrics: number
}

/** Starts kube-proxy with nftables rules, which need no iptables program. Node ports listen at NODE_IP only. */
export async function startProxy(options: NodeOptions, paths: NodePaths, ports: ProxyPorts): Promise<void> {
  const { pki, processes, binaries, apiServer } = options
  const kubeconfig = `${paths.run}/kube-proxy.kubeconfig`
  await pki.issue('kube-proxy', { cn: PROXY_USER })
  await pki.kubeconfig('kube-proxy', `https://${apiServer.host}:${apiServer.port}`, kubeconfig)
  const config = {
    apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
    kind: 'KubeProxyConfiguration',
    mode: 'nftables',
    clusterCIDR: POD_CIDR,
    clientConnection: { kubeconfig },
    hostnameOverride: NODE_NAME,
    bindAddress: NODE_IP,
    healthzBindAddress: `${NODE_IP}:${ports.health}`,
    metricsBindAddress: `${NODE_IP}:${ports.metrics}`,
    nodePortAddresses: [`${NODE_IP}/32`],
    // Keeps the machine's limits of tracked connections.
    conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
    nftables: { minSyncPeriod: '100ms', syncPeriod: '30s' },
  }
  await writeFile(`${paths.run}/kube-proxy.json`, JSON.stringify(config))
  await processes.start({
    name: 'kube-proxy',
    command: binaries('kube-proxy'),
    args: [`--config=${paths.run}/kube-proxy.json`],
    stopSignal: 'SIGKILL',
  })
}

const PROXY_USER = 'system:kube-proxy'

/** The RBAC for kube-proxy, which reads services. */
export const PROXY_OBJECTS: KubeObject[] = [
  {
    apiVersion: 'rbac.authorization.k8s.io/v1',
    kind: 'ClusterRoleBinding',
    metadata: { name: 'fairlead:node-proxier' },
    roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'system:node-proxier' },
    subjects: [{ kind: 'User', apiGroup: 'rbac.authorization.k8s.io', name: PROXY_USER }],
  },
]
