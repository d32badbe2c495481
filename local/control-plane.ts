import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { allEnded } from '#primitives'
import { apiServerReady, probeOf } from './api-server.ts'
import { auditFlags } from './audit.ts'
import type { BinaryPaths } from './build.ts'
import { KUBERNETES_SERVICE_IP, NODE_IP, SERVICE_CIDR } from './node/index.ts'
import type { CertificateFiles, Pki } from './pki.ts'
import type { ProcessGroup } from './processes.ts'

export interface ControlPlaneOptions {
  dir: string
  processes: ProcessGroup
  pki: Pki
  binaries: BinaryPaths
  /** NODE_IP, where pods must reach it, or loopback. */
  host: string
  ports: Record<(typeof CONTROL_PLANE_PORTS)[number], number>
  /** Controller manager and scheduler; without them objects are stored, and nothing happens to them. */
  controllers: boolean
  audit: boolean
}

export const CONTROL_PLANE_PORTS = ['etcd', 'etcdPeer', 'apiServer', 'controllerManager', 'scheduler'] as const

export interface ControlPlane {
  server: string
  /** Of an administrator; present from the moment that kube-apiserver starts. */
  kubeconfig: string
  /** Returns when the API server takes requests. */
  ready(): Promise<void>
  /** Returns when pods can be created: the namespace `default` has its service account. */
  complete(): Promise<void>
}

/** Where clients on this machine may write it; the certificate names every address that anybody uses. */
const SERVER_NAMES = [
  'localhost',
  'kubernetes',
  'kubernetes.default',
  'kubernetes.default.svc',
  'kubernetes.default.svc.cluster.local',
  '127.0.0.1',
  NODE_IP,
  KUBERNETES_SERVICE_IP,
]

/** Thousands of objects a minute are the point of a cluster for tests: its own parts must not be what holds them up. */
const CLIENT_LIMITS = ['--kube-api-qps=500', '--kube-api-burst=1000']

/** They start a quarter quicker, and their memory is bounded all the same. */
const COLLECTS_RARELY = { GOGC: '800', GOMEMLIMIT: '1GiB' }

export async function startEtcd({ dir, processes, binaries, ports }: ControlPlaneOptions): Promise<void> {
  const client = `http://127.0.0.1:${ports.etcd}`
  const peer = `http://127.0.0.1:${ports.etcdPeer}`
  const data = join(dir, 'etcd')
  await mkdir(data, { recursive: true, mode: 0o700 })
  await processes.start({
    name: 'etcd',
    command: binaries('etcd'),
    env: COLLECTS_RARELY,
    args: [
      `--data-dir=${data}`,
      // The page cache outlives any kill; a loss of power may cost a cluster that was for trying things anyway.
      '--unsafe-no-fsync',
      '--log-level=warn',
      `--listen-client-urls=${client}`,
      `--advertise-client-urls=${client}`,
      `--listen-peer-urls=${peer}`,
      `--initial-advertise-peer-urls=${peer}`,
      `--initial-cluster=default=${peer}`,
    ],
    stopSignal: 'SIGKILL',
  })
}

/** etcd may still be starting. */
export async function startApiServer(options: ControlPlaneOptions): Promise<ControlPlane> {
  const { dir, pki, host, ports, processes } = options
  const server = `https://${host}:${ports.apiServer}`
  const kubeconfig = join(dir, 'kubeconfig')
  await pki.issue('admin', { cn: 'fairlead-local-admin', o: ['system:masters'] })
  await pki.kubeconfig('admin', server, kubeconfig)
  await processes.start({
    name: 'kube-apiserver',
    command: options.binaries('kube-apiserver'),
    env: COLLECTS_RARELY,
    args: await apiServerFlags(options),
    stopSignal: 'SIGKILL',
  })

  const probe = probeOf(dir, server)
  const defaultAccount = '/api/v1/namespaces/default/serviceaccounts'
  return {
    server,
    kubeconfig,
    ready: () => apiServerReady(processes, probe),
    async complete() {
      if (!options.controllers) return probe.create(defaultAccount, { metadata: { name: 'default' } })
      const there = async (): Promise<boolean> => (await probe.status(`${defaultAccount}/default`)) === 200
      await processes.waitFor('the default service account', there, 120_000)
    },
  }
}

async function apiServerFlags({ dir, pki, host, ports, audit }: ControlPlaneOptions): Promise<string[]> {
  const serving = await pki.issue('apiserver', { cn: 'kube-apiserver' }, SERVER_NAMES)
  const toKubelet = await pki.issue('kubelet-client', { cn: 'kube-apiserver-kubelet-client', o: ['system:masters'] })
  return [
    `--etcd-servers=http://127.0.0.1:${ports.etcd}`,
    `--bind-address=${host}`,
    `--secure-port=${ports.apiServer}`,
    // Behind the service `kubernetes`, which takes no loopback address; without a node nobody can ask for it.
    `--advertise-address=${NODE_IP}`,
    `--service-cluster-ip-range=${SERVICE_CIDR}`,
    '--anonymous-auth=false',
    '--authorization-mode=Node,RBAC',
    '--enable-admission-plugins=NodeRestriction',
    '--allow-privileged',
    `--client-ca-file=${pki.caFile}`,
    ...fileFlags('tls-cert-file', 'tls-private-key-file', serving),
    ...fileFlags('kubelet-client-certificate', 'kubelet-client-key', toKubelet),
    '--kubelet-preferred-address-types=InternalIP',
    '--service-account-issuer=https://kubernetes.default.svc.cluster.local',
    `--service-account-key-file=${pki.serviceAccountKey.pubFile}`,
    `--service-account-signing-key-file=${pki.serviceAccountKey.keyFile}`,
    '--profiling=false',
    ...(audit ? await auditFlags(dir) : []),
  ]
}

function fileFlags(cert: string, key: string, { certFile, keyFile }: CertificateFiles): string[] {
  return [`--${cert}=${certFile}`, `--${key}=${keyFile}`]
}

/** After the API server is ready: they give up on one that is not. */
export async function startControllers(options: ControlPlaneOptions, server: string): Promise<void> {
  const { pki, ports } = options
  await allEnded([
    startController(options, server, 'kube-controller-manager', ports.controllerManager, [
      `--root-ca-file=${pki.caFile}`,
      `--service-account-private-key-file=${pki.serviceAccountKey.keyFile}`,
      '--use-service-account-credentials',
      `--cluster-signing-cert-file=${pki.caFile}`,
      `--cluster-signing-key-file=${pki.caKeyFile}`,
    ]),
    startController(options, server, 'kube-scheduler', ports.scheduler, []),
  ])
}

async function startController(
  { pki, processes, binaries }: ControlPlaneOptions,
  server: string,
  name: 'kube-controller-manager' | 'kube-scheduler',
  port: number,
  flags: string[],
): Promise<void> {
  const kubeconfig = join(pki.dir, `${name}.kubeconfig`)
  await pki.issue(name, { cn: `system:${name}` })
  await pki.kubeconfig(name, server, kubeconfig)
  await processes.start({
    name,
    command: binaries(name),
    env: COLLECTS_RARELY,
    args: [
      `--kubeconfig=${kubeconfig}`,
      `--authentication-kubeconfig=${kubeconfig}`,
      `--authorization-kubeconfig=${kubeconfig}`,
      '--bind-address=127.0.0.1',
      `--secure-port=${port}`,
      '--leader-elect=false',
      '--profiling=false',
      ...CLIENT_LIMITS,
      ...flags,
    ],
    stopSignal: 'SIGKILL',
  })
}
