import { createHash } from 'node:crypto'
import { type ObservedBy, Pod } from 'fairlead'
import type { StoreSource } from './store-spec.ts'

export type AgentPod = ObservedBy<typeof Pod>
type PodSpec = NonNullable<AgentPod['spec']>
export type AgentContainer = PodSpec['containers'][number]
type Volume = NonNullable<PodSpec['volumes']>[number]

/** The Secrets that the agent reads, keyed by the name of their volume, with the path and the flag for it. */
const SECRETS = {
  store: { path: '/etc/fairlead/store', flag: '--store-secret' },
  'etcd-tls': { path: '/etc/fairlead/etcd-tls', flag: '--etcd-tls' },
}
/**
 * Without a Secret, the clients of AWS and Azure take the identity of the pod. They do not take that of the node, which
 * its pods share.
 */
const OWN_IDENTITY = [
  { name: 'AWS_EC2_METADATA_DISABLED', value: 'true' },
  { name: 'AZURE_TOKEN_CREDENTIALS', value: 'WorkloadIdentityCredential' },
  // In a new pod of GKE, the metadata server may not answer yet.
  { name: 'METADATA_SERVER_DETECTION', value: 'assume-present' },
]
const USER = 65_532
/** The time for the image to be pulled and the process to start, which is added to the agent's own time-out. */
const START_SECONDS = 120

export interface AgentJob {
  image: string
  command: 'backup' | 'verify'
  args: readonly string[]
  store: StoreSource
  serviceAccount: string | undefined
  /** The Secret with the certificate of an etcd client. */
  tlsSecret?: string
  seconds: number
}

/** Returns the end of a pod's name: the same state gives the same name, and another attempt gives another one. */
export const tryOf = (state: readonly unknown[]): string =>
  createHash('sha256').update(state.join(' ')).digest('hex').slice(0, 10)

/**
 * Returns the pod for one run of the agent. It has no token of Kubernetes and no permissions, only its Secrets, the
 * network, and without a Secret of the store the identity of its ServiceAccount in the cloud.
 */
export function agentPod(metadata: { name: string; labels: Record<string, string> }, job: AgentJob): AgentPod {
  const { image, command, args, store, serviceAccount, tlsSecret, seconds } = job
  const secrets = {
    ...(tlsSecret !== undefined && { 'etcd-tls': tlsSecret }),
    ...(store.secret !== undefined && { store: store.secret }),
  }
  const container = agentContainer({
    name: 'agent',
    image,
    args: [command, ...args, ...store.args, `--timeout=${seconds}`],
    secrets: Object.keys(secrets) as (keyof typeof SECRETS)[],
  })
  return Pod.of({
    metadata: { ...metadata, labels: { ...metadata.labels, ...store.labels } },
    spec: {
      ...(serviceAccount !== undefined && { serviceAccountName: serviceAccount }),
      restartPolicy: 'Never',
      activeDeadlineSeconds: seconds + START_SECONDS,
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      securityContext: {
        runAsNonRoot: true,
        runAsUser: USER,
        runAsGroup: USER,
        fsGroup: USER,
        seccompProfile: { type: 'RuntimeDefault' },
      },
      containers: [container],
      volumes: Object.entries(secrets).map(([name, secret]) => secretVolume(name, secret)),
    },
  })
}

/**
 * How long after its deadline a pod is given up. A pod whose node is lost never ends by itself, and a pod that waits
 * for a node has not begun.
 */
const LOST_SECONDS = 300

/** Returns when a pod that has not ended is given up. */
export const lostAt = ({ metadata, spec }: AgentPod): Date =>
  new Date(
    (Date.parse(metadata.creationTimestamp ?? '') || 0) + ((spec?.activeDeadlineSeconds ?? 0) + LOST_SECONDS) * 1000,
  )

/** Returns the agent's container, for a pod of its own or as an init container of a member. */
export function agentContainer({
  name,
  image,
  args,
  secrets,
}: {
  name: string
  image: string
  args: readonly string[]
  /** The volumes of the pod. */
  secrets: readonly (keyof typeof SECRETS)[]
}): AgentContainer {
  const flags = secrets.map((one) => `${SECRETS[one].flag}=${SECRETS[one].path}`)
  return {
    name,
    image,
    args: ['etcd-agent', ...args, ...flags, '--report=/dev/termination-log'],
    env: OWN_IDENTITY,
    terminationMessagePolicy: 'FallbackToLogsOnError',
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
    resources: { requests: { cpu: '100m', memory: '128Mi' }, limits: { memory: '512Mi' } },
    volumeMounts: secrets.map((name) => ({ name, mountPath: SECRETS[name].path, readOnly: true })),
  }
}

/**
 * Returns an optional volume, so that the agent reports a missing Secret. A pod that requires a missing Secret would
 * wait without a report.
 */
export const secretVolume = (name: string, secretName: string): Volume => ({
  name,
  secret: { secretName, optional: true, defaultMode: 0o440 },
})
