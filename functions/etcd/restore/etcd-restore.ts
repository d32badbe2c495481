import type { V1EndpointSlice } from '@kubernetes/client-node'
import { type ConditionUpdate, kind, type ObjectMeta, type ObservedBy, Pod, reconciler, shortName } from 'fairlead'
import {
  type AgentPod,
  agentPod,
  endingOf,
  endOf,
  failureStatus,
  failuresOf,
  isGivenUp,
  progressOf,
  retryAt,
  runsOf,
  type StoredSnapshot,
  storeSource,
  tryOf,
} from '../backup/index.ts'
import { EtcdRestore, type RestoreObject, type RestoreOutcome } from './resource.ts'

/** The fields of an EtcdCluster that a restore reads. */
interface ReplacedCluster {
  metadata: ObjectMeta
  spec: { version?: string }
  status?: {
    /** The UID of the EtcdRestore by which its members are being replaced. */
    restoring?: string
    /** The UID of the EtcdRestore whose snapshot its members have. */
    restoredFrom?: string
    members?: { ready: readonly string[] }
    serviceName?: string
  }
}

const Cluster = kind<ReplacedCluster>({
  group: 'etcd.database.coreos.com',
  version: 'v1beta2',
  kind: 'EtcdCluster',
  plural: 'etcdclusters',
})

/** The cluster that is replaced. */
const Replaced = { ...Cluster, byName: 'spec.etcdCluster.name' } as const

/** The addresses to which the Services of EtcdClusters lead. They have the labels of their Service. */
export const Endpoints = {
  ...kind<V1EndpointSlice>({
    group: 'discovery.k8s.io',
    version: 'v1',
    kind: 'EndpointSlice',
    plural: 'endpointslices',
  }),
  selector: 'app=etcd,etcd_cluster',
} as const
type EndpointsObject = ObservedBy<typeof Endpoints>

/** Whether a member is ready, and the Service for clients leads to it. */
const isServed = ({ status }: ReplacedCluster, endpoints: readonly EndpointsObject[]): boolean =>
  endpoints
    .filter(({ metadata }) => metadata.labels?.['kubernetes.io/service-name'] === status?.serviceName)
    .flatMap((slice) => slice.endpoints ?? [])
    .some(
      ({ conditions, targetRef }) =>
        conditions?.ready === true && status?.members?.ready.includes(targetRef?.name ?? '') === true,
    )

const LONGEST_NAME = 63

/** Returns the pod that reads the snapshot to its end. Its name identifies the attempt. */
function verifyPod({ metadata, spec }: RestoreObject, failures: number): AgentPod {
  const { name, uid, generation } = metadata
  const run = tryOf([uid, generation, failures])
  return agentPod(
    {
      name: `${shortName(name, LONGEST_NAME - run.length - 8)}-verify-${run}`,
      labels: { app: 'etcd-restore', etcd_restore: shortName(name, LONGEST_NAME) },
    },
    {
      image: spec.agentImage,
      command: 'verify',
      args: [],
      store: storeSource(spec.backupStorageType, spec),
      serviceAccount: spec.agentServiceAccount,
      seconds: spec.timeoutInSecond,
    },
  )
}

type Status = Partial<NonNullable<RestoreOutcome['status']>>

/** Returns the result of the pod that has read the snapshot, which counts for this EtcdCluster only. */
function checked(object: RestoreObject, pod: AgentPod, { metadata, spec }: ReplacedCluster): RestoreOutcome {
  const ending = endingOf(pod)
  const at = new Date(endOf(pod))
  if (!ending.succeeded) return failed(object, pod, ending.message, at)
  const { path, size, sha256, etcdRevision, etcdVersion } = ending.report
  const newer = tooNew(ending.report, spec.version)
  if (newer !== undefined) return failed(object, pod, newer, at)
  const status = {
    succeeded: false,
    verified: { path, size, sha256, etcdRevision, etcdVersion },
    clusterUID: metadata.uid,
    lastPod: pod.metadata.name,
  }
  const message = `${path} has ${size} bytes and revision ${etcdRevision}, and is whole`
  return {
    apply: [pod],
    status,
    conditions: readyOf(object, status),
    events: [{ type: 'Normal', reason: 'Verified', message }],
  }
}

function failed(object: RestoreObject, pod: AgentPod, reason: string, at: Date): RestoreOutcome {
  const status = { ...failureStatus(object, pod, at), reason }
  const conditions = readyOf(object, status)
  const events = conditions.map(({ reason: why }) => ({ type: 'Warning', reason: why, message: reason }) as const)
  return { apply: [pod], status, conditions, events }
}

function succeeded(object: RestoreObject): RestoreOutcome {
  const { verified, clusterUID } = object.status
  const status = { succeeded: true, verified, clusterUID }
  const conditions = readyOf(object, status)
  const events = conditions.map(({ reason, message = '' }) => ({ type: 'Normal', reason, message }) as const)
  return { status, conditions, events }
}

/** Returns the conditions for a status. There are none before the first check has ended. */
function readyOf(object: RestoreObject, status: Status = object.status): ConditionUpdate[] {
  const { name } = object.spec.etcdCluster
  const { verified, reason: why = '' } = status
  if (status.succeeded === undefined) return []
  if (status.succeeded) return [ready('True', 'Restored', `EtcdCluster ${name} runs on ${verified?.path}`)]
  if (verified)
    return [ready('False', 'Restoring', `${verified.path} is whole, and EtcdCluster ${name} is replaced by it`)]
  const isAtEnd = isGivenUp(failuresOf({ metadata: object.metadata, status }))
  return [ready('False', isAtEnd ? 'BackoffLimitExceeded' : 'VerifyFailed', why)]
}

const ready = (status: 'True' | 'False', reason: string, message: string): ConditionUpdate => ({
  type: 'Ready',
  status,
  reason,
  message,
})

/**
 * Returns an error if the snapshot is of a later minor version than `spec.version` of the cluster, which the first
 * member runs. etcd would refuse its data after the former members were deleted.
 */
export function tooNew(
  { etcdVersion, path }: Pick<StoredSnapshot, 'etcdVersion' | 'path'>,
  version: string | undefined,
): string | undefined {
  const [snapshot, cluster] = [minorOf(etcdVersion), minorOf(version)]
  if (snapshot === undefined || cluster === undefined || snapshot <= cluster) return undefined
  return `${path} is of etcd ${etcdVersion}, and spec.version of the EtcdCluster is ${version}: set that to ${etcdVersion} first`
}

/** Returns a number for comparisons: 3.10 is later than 3.9. */
function minorOf(version = ''): number | undefined {
  const [, major, minor] = /^v?(\d+)\.(\d+)\./.exec(version) ?? []
  return major === undefined ? undefined : Number(major) * 1000 + Number(minor)
}

/**
 * Replaces the data of a cluster with a snapshot. This function starts a pod that reads and checks the snapshot, and
 * records the result in the status. Only then the function of the EtcdCluster replaces its members, and records the
 * EtcdRestore in its own status.
 */
export const etcdRestore = reconciler({
  name: 'etcd-restore',
  for: EtcdRestore,
  owns: [Pod],
  related: [Replaced, Endpoints],
  reconcile({ object, owned, related, now }) {
    const { spec, status } = object
    if (status.succeeded === true) return { conditions: readyOf(object) }
    const [cluster] = related(Replaced)
    if (cluster === undefined)
      return waiting('NoCluster', `there is no EtcdCluster ${spec.etcdCluster.name}: create it`)
    if (status.verified === undefined) return check(object, owned(Pod), cluster, now)
    const { uid } = object.metadata
    const { restoring, restoredFrom } = cluster.status ?? {}
    if (restoredFrom === uid)
      return isServed(cluster, related(Endpoints))
        ? succeeded(object)
        : waiting('Restoring', notServed(object, cluster))
    const obstacle = restoring === uid ? undefined : obstacleOf(object, cluster)
    return obstacle ?? { conditions: readyOf(object) }
  },
})

const waiting = (reason: string, message: string): RestoreOutcome => ({
  conditions: [{ type: 'Ready', status: 'False', reason, message }],
})

const notServed = ({ spec, status }: RestoreObject, cluster: ReplacedCluster): string =>
  `EtcdCluster ${spec.etcdCluster.name} has the data of ${status.verified?.path}; Service ` +
  `${cluster.status?.serviceName} leads to no ready member yet`

/** Returns the reason why a verified snapshot does not replace the cluster. */
function obstacleOf({ metadata, spec, status }: RestoreObject, cluster: ReplacedCluster): RestoreOutcome | undefined {
  const { uid } = cluster.metadata
  if (status.clusterUID !== uid) {
    const former = `the snapshot was verified for the EtcdCluster ${spec.etcdCluster.name} with another UID than ${uid}`
    return waiting('OtherCluster', `${former}: delete EtcdRestore ${metadata.name}, and create it again`)
  }
  const newer = status.verified && tooNew(status.verified, cluster.spec.version)
  return newer === undefined ? undefined : waiting('SnapshotTooNew', newer)
}

/** Checks the snapshot. The cluster is not changed before this has succeeded. */
function check(object: RestoreObject, pods: readonly AgentPod[], cluster: ReplacedCluster, now: Date): RestoreOutcome {
  const { active, ended } = runsOf(pods, object.status.lastPod)
  if (ended) return checked(object, ended, cluster)
  if (active) return underWay(object, active, now)
  const failures = failuresOf(object)
  const conditions = readyOf(object)
  if (isGivenUp(failures)) return { conditions }
  const due = failures.count === 0 ? now : retryAt(failures)
  return now < due ? { conditions, requeueAt: due } : { conditions, apply: [verifyPod(object, failures.count)] }
}

function underWay(object: RestoreObject, pod: AgentPod, now: Date): RestoreOutcome {
  const progress = progressOf(pod, now)
  if ('lost' in progress) return failed(object, pod, progress.lost, progress.at)
  const reading = { reason: 'Verifying', message: `pod ${pod.metadata.name} reads the snapshot` }
  const { reason, message } = progress.obstacle ?? reading
  return { apply: [pod], ...waiting(reason, message), requeueAt: progress.lostAt }
}
