import { mkdir, readFile, statfs, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { KubeObject } from '#contracts'
import type { BinaryPaths } from '../build.ts'
import { createCgroup } from './cgroups.ts'
import {
  CLUSTER_DOMAIN,
  DNS_SERVICE_IP,
  NODE_IP,
  NODE_NAME,
  type NodeOptions,
  type NodePaths,
  POD_CIDR,
} from './options.ts'

export const PAUSE_IMAGE = 'registry.k8s.io/pause:3.10'

/** The file system type of an overlay mount, on which another overlay cannot be mounted. */
const OVERLAYFS_MAGIC = 0x794c7630

/** Starts containerd, which pulls the images of all registries from `mirror`. */
export async function startContainerd(options: NodeOptions, paths: NodePaths, mirror: string): Promise<void> {
  const folders = { cni: `${paths.run}/cni`, certs: `${paths.run}/certs.d` }
  await mkdir(folders.cni, { recursive: true })
  await mkdir(`${folders.certs}/_default`, { recursive: true })
  await writeFile(`${folders.certs}/_default/hosts.toml`, mirrorConfig(mirror))
  await writeFile(`${folders.cni}/10-fairlead.conflist`, JSON.stringify(networkConfig(paths)))
  await writeFile(runcScript(paths), withoutSeccomp(options.binaries('runc')), { mode: 0o755 })
  const overlay = (await statfs(paths.state)).type === OVERLAYFS_MAGIC
  const config = containerdConfig({
    paths,
    folders,
    snapshotter: overlay ? 'native' : 'overlayfs',
    binaries: options.binaries,
  })
  await writeFile(`${paths.run}/containerd.toml`, config)
  await options.processes.start({
    name: 'containerd',
    command: options.binaries('containerd'),
    args: ['--config', `${paths.run}/containerd.toml`],
    stopSignal: 'SIGKILL',
  })
}

/** The script is not on /run, which many systems mount with noexec. */
function runcScript(paths: NodePaths): string {
  return `${paths.state}/runc`
}

/**
 * The kubelet sets a seccomp filter for every pod, and runc supports them only if it is built with the headers of
 * libseccomp, which few machines have. The script removes the filter from the container's configuration: it renames the
 * key to one that runc ignores. Quotes inside of a JSON string would be escaped, so no other text matches.
 */
function withoutSeccomp(runc: string): string {
  return `#!/bin/sh
for arg; do
  [ "$before" != --bundle ] || sed -i 's/"seccomp":{/"unsupported-seccomp":{/' "$arg/config.json"
  before=$arg
done
exec '${runc}' "$@"
`
}

/**
 * The mirror is also the `server`, so that a pull of a missing image fails at once instead of asking public registries.
 */
function mirrorConfig(mirror: string): string {
  return `server = "${mirror}"\n[host."${mirror}"]\n  capabilities = ["pull", "resolve"]\n`
}

/** Each pod has its own link to the machine (ptp). Without a bridge, services work without br_netfilter. */
function networkConfig(paths: NodePaths): object {
  const ipam = {
    type: 'host-local',
    dataDir: `${paths.run}/ipam`,
    ranges: [[{ subnet: POD_CIDR }]],
    routes: [{ dst: '0.0.0.0/0' }],
  }
  return {
    cniVersion: '1.0.0',
    name: 'fairlead',
    plugins: [
      { type: 'ptp', ipMasq: false, ipam },
      { type: 'portmap', backend: 'nftables', capabilities: { portMappings: true } },
    ],
  }
}

interface ContainerdSettings {
  paths: NodePaths
  folders: { cni: string; certs: string }
  snapshotter: 'overlayfs' | 'native'
  binaries: BinaryPaths
}

/**
 * restrict_oom_score_adj: without it, no pod could start if CAP_SYS_RESOURCE is missing. netns_mounts_under_state_dir:
 * all mounts are below the node's own folder, so that clean-up finds them.
 */
function containerdConfig({ paths, folders, snapshotter, binaries }: ContainerdSettings): string {
  const plugins = (['ptp', 'host-local', 'portmap', 'loopback'] as const).map((name) => dirname(binaries(name)))
  return `
version = 3
root = "${paths.state}/containerd"
state = "${paths.run}/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "${paths.containerdSocket}"
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = "${paths.run}/s"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "${snapshotter}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "${PAUSE_IMAGE}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "${folders.certs}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ${JSON.stringify([...new Set(plugins)])}
    conf_dir = "${folders.cni}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "${binaries('containerd-shim-runc-v2')}"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "${runcScript(paths)}"
      Root = "${paths.run}/runc"
      SystemdCgroup = false
`
}

export async function startKubelet(options: NodeOptions, paths: NodePaths, port: number): Promise<void> {
  const { pki, processes, binaries, apiServer } = options
  const certificate = await pki.issue('node', { cn: `system:node:${NODE_NAME}`, o: ['system:nodes'] }, [
    NODE_NAME,
    NODE_IP,
  ])
  const kubeconfig = `${paths.run}/kubelet.kubeconfig`
  await pki.kubeconfig('node', `https://${apiServer.host}:${apiServer.port}`, kubeconfig)
  await mkdir(`${paths.state}/kubelet`, { recursive: true })
  const config = kubeletConfig(paths, port, { ...certificate, caFile: pki.caFile })
  await writeFile(`${paths.run}/kubelet.json`, JSON.stringify(config))
  await createCgroup(paths.id)
  await processes.start({
    name: 'kubelet',
    command: binaries('kubelet'),
    args: [
      `--config=${paths.run}/kubelet.json`,
      `--kubeconfig=${kubeconfig}`,
      `--root-dir=${paths.state}/kubelet`,
      `--hostname-override=${NODE_NAME}`,
      `--node-ip=${NODE_IP}`,
    ],
    stopSignal: 'SIGKILL',
  })
}

interface ServingFiles {
  certFile: string
  keyFile: string
  caFile: string
}

function kubeletConfig(paths: NodePaths, port: number, files: ServingFiles): object {
  return {
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    failCgroupV1: false,
    cgroupDriver: 'cgroupfs',
    cgroupRoot: `/${paths.id}`,
    containerRuntimeEndpoint: `unix://${paths.containerdSocket}`,
    address: NODE_IP,
    port,
    healthzPort: 0,
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: files.caFile },
    },
    authorization: { mode: 'Webhook' },
    tlsCertFile: files.certFile,
    tlsPrivateKeyFile: files.keyFile,
    failSwapOn: false,
    // The kubelet must accept pods on a user's disk that is nearly full.
    evictionHard: { 'nodefs.available': '1%', 'imagefs.available': '1%', 'memory.available': '50Mi' },
    imageGCHighThresholdPercent: 100,
    makeIPTablesUtilChains: false,
    volumePluginDir: `${paths.state}/volume-plugins`,
    clusterDomain: CLUSTER_DOMAIN,
    clusterDNS: [DNS_SERVICE_IP],
    resolvConf: resolvConf(paths),
    podLogsDir: paths.podLogs,
    maxPods: 200,
    syncFrequency: '10s',
    serializeImagePulls: false,
    registryPullQPS: 0,
    kubeAPIQPS: 200,
    kubeAPIBurst: 400,
  }
}

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

/** Returns the file with the name servers for pods, and for names outside of the cluster in CoreDNS. */
function resolvConf(paths: NodePaths): string {
  return `${paths.run}/resolv.conf`
}

export async function writeResolvConf(paths: NodePaths): Promise<void> {
  await writeFile(resolvConf(paths), nameServers(await systemResolvConf()))
}

/**
 * Reads systemd-resolved's upstream file if the machine uses it: its own address is on the loopback, which pods cannot
 * reach.
 */
async function systemResolvConf(): Promise<string> {
  const system = await readFile('/etc/resolv.conf', 'utf8').catch(() => '')
  const stub = /^nameserver\s+127\.0\.0\.53/m.test(system)
  return stub ? readFile('/run/systemd/resolve/resolv.conf', 'utf8').catch(() => system) : system
}

/**
 * Returns only the `nameserver` lines: the machine's search domains would cause several queries for each name of the
 * cluster.
 */
export function nameServers(resolvConf: string): string {
  return resolvConf
    .split('\n')
    .filter((line) => /^nameserver\s/.test(line))
    .map((line) => `${line}\n`)
    .join('')
}
