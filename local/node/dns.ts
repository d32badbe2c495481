import { readFile, writeFile } from 'node:fs/promises'
import type { KubeObject } from '#contracts'
import { CLUSTER_DOMAIN, DNS_SERVICE_IP, NODE_IP } from './addresses.ts'
import type { NodeOptions } from './options.ts'
import type { NodePaths } from './paths.ts'
import { resolvConf } from './resolv-conf.ts'

const DNS_USER = 'system:coredns'

/** Starts CoreDNS at NODE_IP, as a process of this machine instead of a pod. */
export async function startDns(options: NodeOptions, paths: NodePaths, port: number): Promise<void> {
  const { pki, processes, binaries, apiServer } = options
  const kubeconfig = `${paths.run}/coredns.kubeconfig`
  await pki.issue('coredns', { cn: DNS_USER })
  await pki.kubeconfig('coredns', `https://${apiServer.host}:${apiServer.port}`, kubeconfig)
  const upstream = (await readFile(resolvConf(paths), 'utf8')) !== ''
  await writeFile(
    `${paths.run}/Corefile`,
    corefile({ port, kubeconfig, forward: upstream ? resolvConf(paths) : undefined }),
  )
  await processes.start({
    name: 'coredns',
    command: binaries('coredns'),
    args: ['-conf', `${paths.run}/Corefile`],
    stopSignal: 'SIGKILL',
  })
}

interface DnsSettings {
  port: number
  kubeconfig: string
  /** A resolv.conf with the upstream name servers. Undefined if there are none: CoreDNS rejects an empty file. */
  forward: string | undefined
}

/** Names of the cluster are not cached, so that a new service is resolved at once. */
function corefile({ port, kubeconfig, forward }: DnsSettings): string {
  return `.:${port} {
  bind ${NODE_IP}
  errors
  kubernetes ${CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {
    kubeconfig ${kubeconfig}
    pods insecure
    ttl 5
  }
  ${forward === undefined ? '' : `forward . ${forward}`}
  cache 5 {
    disable success ${CLUSTER_DOMAIN}
    disable denial ${CLUSTER_DOMAIN}
  }
}
`
}

/** Returns the service `kube-dns` that leads to this process, and the RBAC for reading services and pods. */
export function dnsObjects(port: number): KubeObject[] {
  const rbac = 'rbac.authorization.k8s.io'
  const named = { name: 'kube-dns', namespace: 'kube-system' }
  const ports = [
    { name: 'dns', protocol: 'UDP' },
    { name: 'dns-tcp', protocol: 'TCP' },
  ]
  return [
    {
      apiVersion: `${rbac}/v1`,
      kind: 'ClusterRole',
      metadata: { name: 'fairlead:coredns' },
      rules: [
        { apiGroups: [''], resources: ['services', 'pods', 'namespaces'], verbs: ['list', 'watch'] },
        { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: ['list', 'watch'] },
      ],
    },
    {
      apiVersion: `${rbac}/v1`,
      kind: 'ClusterRoleBinding',
      metadata: { name: 'fairlead:coredns' },
      roleRef: { apiGroup: rbac, kind: 'ClusterRole', name: 'fairlead:coredns' },
      subjects: [{ kind: 'User', apiGroup: rbac, name: DNS_USER }],
    },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: named,
      spec: { clusterIP: DNS_SERVICE_IP, ports: ports.map((entry) => ({ ...entry, port: 53, targetPort: port })) },
    },
    {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { ...named, labels: { 'kubernetes.io/service-name': 'kube-dns' } },
      addressType: 'IPv4',
      ports: ports.map((entry) => ({ ...entry, port })),
      endpoints: [{ addresses: [NODE_IP], conditions: { ready: true } }],
    },
  ]
}
