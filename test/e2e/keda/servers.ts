import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Cluster, issueFrom, newAuthority, ProcessGroup } from '#lab'
import { freePorts } from '../../../packages/lab/ports.ts'
import type { Kubectl } from '../../support/kubectl.ts'
import { kedaPrograms } from './programs.ts'

const NAMESPACE = 'keda'
const API = 'keda-metrics-apiserver'

/** Starts KEDA's operator and metrics adapter beside a cluster, and returns when its API server has the metrics. */
export async function startKeda({ dir, kubeconfig }: Cluster, kubectl: Kubectl): Promise<void> {
  const programs = await kedaPrograms()
  const [service = 0, adapter = 0, ...others] = await freePorts(6)
  const certificates = join(dir, 'keda')
  const authority = await writeCertificates(certificates)
  await kubectl(['apply', '--server-side', '-f', programs.crds])
  await kubectl(['create', 'namespace', NAMESPACE])
  await kubectl(['wait', '--for=condition=Established', '--all', 'crd', '--timeout=240s'])
  const processes = new ProcessGroup(dir)
  const env = { KUBECONFIG: kubeconfig, KEDA_CLUSTER_OBJECT_NAMESPACE: NAMESPACE, WATCH_NAMESPACE: '' }
  const at = (index: number) => `127.0.0.1:${others[index]}`
  await processes.start({
    name: 'keda-operator',
    command: programs.operator,
    env,
    args: [
      `--metrics-bind-address=${at(0)}`,
      `--health-probe-bind-address=${at(1)}`,
      `--metrics-service-bind-address=127.0.0.1:${service}`,
      `--cert-dir=${certificates}`,
      '--zap-log-level=info',
    ],
    stopSignal: 'SIGKILL',
  })
  await processes.start({
    name: 'keda-adapter',
    command: programs.adapter,
    env,
    args: [
      `--port=${others[2]}`,
      `--secure-port=${adapter}`,
      '--bind-address=127.0.0.1',
      `--cert-dir=${certificates}`,
      `--tls-cert-file=${join(certificates, 'tls.crt')}`,
      `--tls-private-key-file=${join(certificates, 'tls.key')}`,
      `--metrics-service-address=localhost:${service}`,
      ...['authentication', 'authorization', 'lister'].map((what) => `--${what}-kubeconfig=${kubeconfig}`),
    ],
    stopSignal: 'SIGKILL',
  })
  await kubectl(['apply', '-f', '-'], list([apiService(adapter, authority), externalService()]))
  await kubectl(['wait', '--for=condition=Available', 'apiservice/v1beta1.external.metrics.k8s.io', '--timeout=240s'])
}

/** Writes the certificate of both programs, and returns that of its authority. */
async function writeCertificates(folder: string): Promise<string> {
  const days = { now: new Date(), days: 2 }
  const authority = newAuthority({ cn: 'keda' }, days)
  const sans = ['localhost', '127.0.0.1', `${API}.${NAMESPACE}.svc`]
  const leaf = issueFrom(authority, { subject: { cn: 'keda' }, sans }, days)
  const files = {
    'ca.crt': authority.certificate,
    'tls.crt': leaf.certificate,
    'tls.key': leaf.privateKey.export({ type: 'sec1', format: 'pem' }),
  }
  await mkdir(folder)
  for (const [name, content] of Object.entries(files)) await writeFile(join(folder, name), content, { mode: 0o600 })
  return authority.certificate
}

const apiService = (port: number, authority: string) => ({
  apiVersion: 'apiregistration.k8s.io/v1',
  kind: 'APIService',
  metadata: { name: 'v1beta1.external.metrics.k8s.io' },
  spec: {
    group: 'external.metrics.k8s.io',
    version: 'v1beta1',
    groupPriorityMinimum: 100,
    versionPriority: 100,
    service: { name: API, namespace: NAMESPACE, port },
    caBundle: Buffer.from(authority).toString('base64'),
  },
})

/** A name in the cluster for the adapter, which runs beside kube-apiserver. */
const externalService = () => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name: API, namespace: NAMESPACE },
  spec: { type: 'ExternalName', externalName: 'localhost' },
})

const list = (items: object[]) => ({ apiVersion: 'v1', kind: 'List', items })
