import { createHash } from 'node:crypto'
import { type ObservedBy, Pod } from '#sdk'
import type { StoreSource } from './store-spec.ts'

export type AgentPod = ObservedBy<typeof Pod>
type PodSpec = NonNullable<AgentPod['spec']>
export type AgentContainer = PodSpec['containers'][number]
type Volume = NonNullable<PodSpec['volumes']>[number]

/** Secrets that the agent reads, by the name of their volume: where it has them, and how it is told. */
const SECRETS = {
  store: { path: '/etc/fairlead/store', flag: '--store-secret' },
  'etcd-tls': { path: '/etc/fairlead/etcd-tls', flag: '--etcd-tls' },
}
const USER = 65_532
/** For the image to be pulled and the process to start, beyond what the agent itself keeps to. */
const START_SECONDS = 120

export interface AgentJob {
  image: string
  command: 'backup' | 'verify'
  args: readonly string[]
  store: StoreSource
  /** Secret with the certificate of a client of etcd. */
  tlsSecret?: string | undefined
  seconds: number
}

/** What the name of a pod ends with: the same state has the same, another try another one. */
export const tryOf = (state: readonly unknown[]): string =>
  createHash('sha256').update(state.join(' ')).digest('hex').slice(0, 10)

/** One run of the agent: it has no account, no rights, and nothing but its Secrets and the network. */
export function agentPod(metadata: { name: string; labels: Record<string, string> }, job: AgentJob): AgentPod {
  const { image, command, args, store, tlsSecret, seconds } = job
  const volumes = [
    secretVolume('store', store.secret),
    ...(tlsSecret === undefined ? [] : [secretVolume('etcd-tls', tlsSecret)]),
  ]
  const container = agentContainer({
    name: 'agent',
    image,
    args: [command, ...args, ...store.args, `--timeout=${seconds}`],
    secrets: tlsSecret === undefined ? ['store'] : ['etcd-tls', 'store'],
  })
  return Pod.of({
    metadata,
    spec: {
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
      volumes,
    },
  })
}

/** A pod whose node is lost never ends by itself; one that waits for a node has not begun. */
const LOST_SECONDS = 300

/** When a pod that has not ended is given up. */
export const lostAt = ({ metadata, spec }: AgentPod): Date =>
  new Date(
    (Date.parse(metadata.creationTimestamp ?? '') || 0) + ((spec?.activeDeadlineSeconds ?? 0) + LOST_SECONDS) * 1000,
  )

/** As it is in a pod of its own, and as an init container of a member. */
export function agentContainer({
  name,
  image,
  args,
  secrets,
}: {
  name: string
  image: string
  args: readonly string[]
  /** Volumes of the pod. */
  secrets: readonly (keyof typeof SECRETS)[]
}): AgentContainer {
  const flags = secrets.map((one) => `${SECRETS[one].flag}=${SECRETS[one].path}`)
  return {
    name,
    image,
    args: ['etcd-agent', ...args, ...flags, '--report=/dev/termination-log'],
    terminationMessagePolicy: 'FallbackToLogsOnError',
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
    resources: { requests: { cpu: '100m', memory: '128Mi' }, limits: { memory: '512Mi' } },
    volumeMounts: secrets.map((name) => ({ name, mountPath: SECRETS[name].path, readOnly: true })),
  }
}

/** A Secret that is missing is reported by the agent; a pod that needs it would wait without a word. */
export const secretVolume = (name: string, secretName: string): Volume => ({
  name,
  secret: { secretName, optional: true, defaultMode: 0o440 },
})
