import { readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { request } from 'node:https'
import { join } from 'node:path'
import { allEnded } from '#primitives'
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
  /** NODE_IP if pods must reach the API server, or loopback. */
  host: string
  ports: Record<(typeof CONTROL_PLANE_PORTS)[number], number>
  /** The controller manager and the scheduler. Without them, objects are stored without further effect. */
  controllers: boolean
  audit: boolean
  isLarge: boolean
}

export const CONTROL_PLANE_PORTS = ['etcd', 'etcdPeer', 'apiServer', 'controllerManager', 'scheduler'] as const

export interface ControlPlane {
  server: string
  /** The kubeconfig of an administrator. It exists as soon as kube-apiserver starts. */
  kubeconfig: string
  /** Resolves when the API server accepts requests. */
  ready(): Promise<void>
  /** Resolves when pods can be created: the namespace `default` has its service account. */
  complete(): Promise<void>
}

/** The names that clients on this machine may use for the API server; its certificate contains all of them. */
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

/** Name in the certificate by which kube-apiserver is known to API servers that it forwards requests to. */
const FRONT_PROXY = 'front-proxy-client'

/** Tests create thousands of objects per minute, which the default limits of the control plane would delay. */
const CLIENT_LIMITS = ['--kube-api-qps=500', '--kube-api-burst=1000']

/** The servers start 25 % faster with this garbage collection; GOMEMLIMIT still bounds their memory. */
const COLLECTS_RARELY = { GOGC: '800', GOMEMLIMIT: '1GiB' }

/** The same for a million objects, for which etcd and kube-apiserver need several GiB each. The default quota of etcd is 2 GiB. */
const FOR_A_MILLION = { GOGC: '100', GOMEMLIMIT: '8GiB', ETCD_QUOTA_BACKEND_BYTES: String(8 * 2 ** 30) }

const environmentOf = ({ isLarge }: ControlPlaneOptions): Record<string, string> =>
  isLarge ? FOR_A_MILLION : COLLECTS_RARELY

export async function startEtcd(options: ControlPlaneOptions): Promise<void> {
  const { dir, processes, binaries, ports } = options
  const client = `http://127.0.0.1:${ports.etcd}`
  const peer = `http://127.0.0.1:${ports.etcdPeer}`
  const data = join(dir, 'etcd')
  await mkdir(data, { recursive: true, mode: 0o700 })
  await processes.start({
    name: 'etcd',
    command: binaries('etcd'),
    env: environmentOf(options),
    args: [
      `--data-dir=${data}`,
      // Data survives a kill in the page cache. A power loss may destroy this cluster, which is for tests and
      // development.
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

/** Starts kube-apiserver. etcd may still be starting. */
export async function startApiServer(options: ControlPlaneOptions): Promise<ControlPlane> {
  const { dir, pki, host, ports, processes } = options
  const server = `https://${host}:${ports.apiServer}`
  const kubeconfig = join(dir, 'kubeconfig')
  await pki.issue('admin', { cn: 'fairlead-local-admin', o: ['system:masters'] })
  await pki.kubeconfig('admin', server, kubeconfig)
  await processes.start({
    name: 'kube-apiserver',
    command: options.binaries('kube-apiserver'),
    env: environmentOf(options),
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
  const proxy = await pki.issue('front-proxy-client', { cn: FRONT_PROXY })
  const toKubelet = await pki.issue('kubelet-client', { cn: 'kube-apiserver-kubelet-client', o: ['system:masters'] })
  return [
    `--etcd-servers=http://127.0.0.1:${ports.etcd}`,
    `--bind-address=${host}`,
    `--secure-port=${ports.apiServer}`,
    // The address behind the service `kubernetes`, which cannot be a loopback address. Without a node, it has no
    // clients.
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
    ...aggregationFlags(pki.caFile, proxy),
    '--service-account-issuer=https://kubernetes.default.svc.cluster.local',
    `--service-account-key-file=${pki.serviceAccountKey.pubFile}`,
    `--service-account-signing-key-file=${pki.serviceAccountKey.keyFile}`,
    '--profiling=false',
    ...(audit ? await auditFlags(dir) : []),
  ]
}

/** Flags of the aggregation layer: other API servers, such as those of metrics, accept the users that kube-apiserver forwards. */
function aggregationFlags(caFile: string, proxy: CertificateFiles): string[] {
  return [
    `--requestheader-client-ca-file=${caFile}`,
    `--requestheader-allowed-names=${FRONT_PROXY}`,
    '--requestheader-extra-headers-prefix=X-Remote-Extra-',
    '--requestheader-group-headers=X-Remote-Group',
    '--requestheader-username-headers=X-Remote-User',
    ...fileFlags('proxy-client-cert-file', 'proxy-client-key-file', proxy),
  ]
}

function fileFlags(cert: string, key: string, { certFile, keyFile }: CertificateFiles): string[] {
  return [`--${cert}=${certFile}`, `--${key}=${keyFile}`]
}

/** Starts the controllers. The API server must be ready, since they exit without it. */
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

/** The few requests that starting an API server needs. Other code uses a real client. */
export interface ApiProbe {
  /** Returns the HTTP status of a GET; 0 without an answer. */
  status(path: string): Promise<number>
  /** Creates an object with a POST; 409 counts as success. */
  create(path: string, object: object): Promise<void>
}

const TIMEOUT_MS = 5000

/** A probe of the cluster in that folder, with the administrator's certificate. */
export function probeOf(dir: string, server: string): ApiProbe {
  const pem = (name: string): Buffer => readFileSync(join(dir, 'pki', name))
  const login = { ca: pem('ca.crt'), cert: pem('admin.crt'), key: pem('admin.key'), timeout: TIMEOUT_MS }

  const send = (method: string, path: string, body?: object): Promise<number> =>
    new Promise((resolve) => {
      const headers = { 'content-type': 'application/json', connection: 'close' }
      const sent = request(`${server}${path}`, { ...login, method, headers, agent: false }, (answer) => {
        answer.resume()
        answer.once('close', () => resolve(answer.statusCode ?? 0))
      })
      sent.once('timeout', () => sent.destroy())
      sent.once('close', () => resolve(0))
      sent.once('error', () => resolve(0))
      sent.end(body && JSON.stringify(body))
    })

  return {
    status: (path) => send('GET', path),
    async create(path, object) {
      const status = await send('POST', path, object)
      if (status !== 201 && status !== 409)
        throw new Error(`POST ${path}: the API server answered ${status || 'nothing'}`)
    },
  }
}

/** Returns when kube-apiserver takes requests. */
export async function apiServerReady(processes: ProcessGroup, probe: ApiProbe): Promise<void> {
  const isReady = async (): Promise<boolean> => (await probe.status('/readyz')) === 200
  await processes.waitFor('kube-apiserver', isReady, 120_000, ['etcd', 'kube-apiserver'])
}
