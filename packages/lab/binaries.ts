/**
 * A server, which is a package of a Go module; go.mod and go.sum in go/MODULE pin its exact version. `seconds` is the
 * time of a first build on two cores, in build order: the first program of a module compiles the packages that the
 * others share.
 */
export interface Binary {
  module:
    | 'k8s'
    | 'misc'
    | 'etcd36'
    | 'containerd'
    | 'cni'
    | 'registry'
    | 'coredns'
    | 'runc'
    | 'kwok'
    | 'etcd-tools'
    | 'helm'
  package: string
  seconds: number
  /** The number of packages outside of the standard library that earlier programs of the module do not contain. */
  packages: number
}

const KUBERNETES = 'k8s.io/kubernetes/cmd'
const CNI = 'github.com/containernetworking/plugins/plugins'
const CONTAINERD = 'github.com/containerd/containerd/v2/cmd'

const table = {
  'nats-server': { module: 'misc', package: 'github.com/nats-io/nats-server/v2', seconds: 15, packages: 41 },
  etcd: { module: 'misc', package: 'go.etcd.io/etcd/server/v3', seconds: 20, packages: 347 },
  etcdutl: { module: 'etcd-tools', package: 'go.etcd.io/etcd/etcdutl/v3', seconds: 20, packages: 289 },
  etcdctl: { module: 'etcd-tools', package: 'go.etcd.io/etcd/etcdctl/v3', seconds: 10, packages: 13 },
  /** One minor version older, for tests of upgrades between the two. */
  'etcd-3.6': { module: 'etcd36', package: 'go.etcd.io/etcd/server/v3', seconds: 60, packages: 367 },
  'kube-apiserver': { module: 'k8s', package: `${KUBERNETES}/kube-apiserver`, seconds: 190, packages: 1799 },
  'kube-controller-manager': {
    module: 'k8s',
    package: `${KUBERNETES}/kube-controller-manager`,
    seconds: 35,
    packages: 388,
  },
  'kube-scheduler': { module: 'k8s', package: `${KUBERNETES}/kube-scheduler`, seconds: 10, packages: 6 },
  kubectl: { module: 'k8s', package: `${KUBERNETES}/kubectl`, seconds: 15, packages: 192 },
  kubelet: { module: 'k8s', package: `${KUBERNETES}/kubelet`, seconds: 35, packages: 100 },
  'kube-proxy': { module: 'k8s', package: `${KUBERNETES}/kube-proxy`, seconds: 10, packages: 26 },
  containerd: { module: 'containerd', package: `${CONTAINERD}/containerd`, seconds: 45, packages: 759 },
  'containerd-shim-runc-v2': {
    module: 'containerd',
    package: `${CONTAINERD}/containerd-shim-runc-v2`,
    seconds: 10,
    packages: 11,
  },
  ptp: { module: 'cni', package: `${CNI}/main/ptp`, seconds: 10, packages: 27 },
  loopback: { module: 'cni', package: `${CNI}/main/loopback`, seconds: 2, packages: 1 },
  'host-local': { module: 'cni', package: `${CNI}/ipam/host-local`, seconds: 2, packages: 5 },
  portmap: { module: 'cni', package: `${CNI}/meta/portmap`, seconds: 2, packages: 2 },
  /** The widely used CNCF registry; tests push images to it. */
  registry: {
    module: 'registry',
    package: 'github.com/distribution/distribution/v3/cmd/registry',
    seconds: 60,
    packages: 775,
  },
  coredns: { module: 'coredns', package: '.', seconds: 60, packages: 571 },
  runc: { module: 'runc', package: 'github.com/opencontainers/runc', seconds: 15, packages: 77 },
  kwok: { module: 'kwok', package: 'sigs.k8s.io/kwok/cmd/kwok', seconds: 90, packages: 741 },
  /** Used by tests of the charts. */
  helm: { module: 'helm', package: 'helm.sh/helm/v4/cmd/helm', seconds: 120, packages: 783 },
} satisfies Record<string, Binary>

export type BinaryName = keyof typeof table

export const binaries: Record<BinaryName, Binary> = table

export const natsBinaries: BinaryName[] = ['nats-server']
export const apiServerBinaries: BinaryName[] = ['etcd', 'kube-apiserver']
export const controlPlaneBinaries: BinaryName[] = [...apiServerBinaries, 'kube-controller-manager', 'kube-scheduler']
/** Programs for users. */
export const toolBinaries: BinaryName[] = ['kubectl']
export const nodeBinaries: BinaryName[] = [
  'kubelet',
  'containerd',
  'containerd-shim-runc-v2',
  'runc',
  'ptp',
  'loopback',
  'host-local',
  'portmap',
]
/** Services and DNS on a real node. */
export const serviceBinaries: BinaryName[] = ['kube-proxy', 'coredns']
/** Programs for snapshots of etcd. The image of Fairlead contains the first one. */
export const etcdTools: BinaryName[] = ['etcdutl', 'etcdctl']
export const kwokBinaries: BinaryName[] = ['kwok']

const KUBERNETES_VERSION = 'v1.36.3'

/** Without these flags, Kubernetes reports the version v0.0.0-master, which clients reject. */
const kubernetesVersionFlags = ['k8s.io/component-base/version', 'k8s.io/client-go/pkg/version'].flatMap((into) => [
  `-X ${into}.gitVersion=${KUBERNETES_VERSION}`,
  `-X ${into}.gitMajor=1`,
  `-X ${into}.gitMinor=36`,
  `-X ${into}.gitTreeState=clean`,
])

export function linkerFlags(module: Binary['module']): string {
  return ['-s', '-w', ...(module === 'k8s' ? kubernetesVersionFlags : [])].join(' ')
}

/** runc needs cgo: C code enters the container's namespaces. */
export function needsC(module: Binary['module']): boolean {
  return module === 'runc'
}
