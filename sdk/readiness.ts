import { groupOf, isRecord, type KubeObject } from '#contracts'
import { type Deployment, rolloutOf } from './built-in-kinds.ts'
import type { ObservedBy } from './kinds.ts'

/**
 * Whether an object does its work, and what is missing.
 *
 * @example
 * import { type Readiness, readinessOf } from 'fairlead'
 * const missing: Readiness = readinessOf(undefined)
 * missing.isReady // => false
 */
export interface Readiness {
  isReady: boolean
  /** It does not get ready by itself: a Job or Pod that failed, or a rollout beyond its deadline. */
  isFailed: boolean
  /** What is missing, such as `0 of 1 replicas are ready`. Empty if it is ready. */
  message: string
}

interface Condition {
  type: string
  status: string
  reason?: string
  message?: string
  observedGeneration?: number
}

interface Status {
  phase?: string
  observedGeneration?: number
  conditions?: Condition[]
  /** The replicas that are wanted, if not by the spec. */
  wanted?: number
  [field: string]: unknown
}

const READY: Readiness = { isReady: true, isFailed: false, message: '' }
const waits = (message: string): Readiness => ({ isReady: false, isFailed: false, message })
const failed = (message: string): Readiness => ({ isReady: false, isFailed: true, message })

/**
 * Returns the readiness of an object as its controller reports it for the last change of its spec: a Deployment,
 * StatefulSet or DaemonSet by its rollout, a Job by its completion, a Pod and each other kind by its condition Ready,
 * Available or Established. Without such a condition, an object of Kubernetes is ready when it exists, and one of
 * another API group is not. `undefined` is an object that does not exist.
 *
 * @example
 * import { Job, readinessOf } from 'fairlead'
 * const status = { conditions: [{ type: 'Failed', status: 'True', reason: 'BackoffLimitExceeded' }] }
 * const job = Job.of({ metadata: { name: 'a' }, status })
 * readinessOf(job) // => { isReady: false, isFailed: true, message: 'it has failed: BackoffLimitExceeded' }
 */
export function readinessOf(object: KubeObject | undefined): Readiness {
  if (object === undefined) return waits('it does not exist yet')
  if (object.metadata.deletionTimestamp !== undefined) return waits('it is being deleted')
  const status: Status = isRecord(object.status) ? object.status : {}
  const kind = `${object.kind}.${groupOf(object.apiVersion)}`
  const counts = WORKLOADS[kind]
  if (counts !== undefined) return rolledOut(object, counts(status))
  return kind === 'Job.batch' ? ended(status) : byCondition(object, status)
}

/** The kinds of workloads, each with its counts by the names of a Deployment. */
const WORKLOADS: Record<string, (status: Status) => Status> = {
  'Deployment.apps': (status) => status,
  'StatefulSet.apps': (status) => status,
  'ReplicaSet.apps': (status) => ({ ...status, updatedReplicas: status['replicas'] }),
  'DaemonSet.apps': ({ observedGeneration, ...status }) => ({
    ...(observedGeneration !== undefined && { observedGeneration }),
    wanted: Number(status['desiredNumberScheduled'] ?? 0),
    readyReplicas: status['numberReady'],
    updatedReplicas: status['updatedNumberScheduled'],
  }),
}

function rolledOut(object: KubeObject, status: Status): Readiness {
  const { replicas = status.wanted ?? 1 } = (object.spec ?? {}) as { replicas?: number }
  const workload = { ...object, spec: { ...(object.spec as object), replicas }, status }
  const { ready, isComplete, isStuck } = rolloutOf(workload as unknown as ObservedBy<typeof Deployment>)
  if (isComplete) return READY
  const message =
    ready < replicas ? `${ready} of ${replicas} replicas are ready` : 'its last change is not rolled out yet'
  return isStuck ? failed(`${message}, and its progress deadline is exceeded`) : waits(message)
}

const conditionOf = ({ conditions = [] }: Status, type: string) => conditions.find((one) => one.type === type)

function ended(status: Status): Readiness {
  const failure = conditionOf(status, 'Failed')
  if (failure?.status === 'True') return failed(`it has failed${wordsOf(failure)}`)
  return conditionOf(status, 'Complete')?.status === 'True' ? READY : waits('it is not complete yet')
}

const LONGEST = 200

const wordsOf = ({ reason, message }: Condition): string =>
  [reason, message].flatMap((part) => (part ? `: ${part.slice(0, LONGEST)}` : [])).join('')

/** The API groups of Kubernetes whose objects work as soon as they exist, unless a condition says otherwise. */
const PLAIN = /^(apps|autoscaling|batch|policy|((?!api)[a-z]+|rbac\.authorization|flowcontrol\.apiserver)\.k8s\.io)?$/

function byCondition(object: KubeObject, status: Status): Readiness {
  const { kind, metadata } = object
  if (kind === 'Pod' && status.phase === 'Succeeded') return READY
  if (kind === 'Pod' && status.phase === 'Failed') return failed(`it has failed${wordsOf(status as never)}`)
  const found = ['Ready', 'Available', 'Established'].flatMap((type) => conditionOf(status, type) ?? [])[0]
  if (found === undefined && kind === 'Pod') return waits('it has not started yet')
  if (found === undefined)
    return PLAIN.test(groupOf(object.apiVersion))
      ? READY
      : waits('it has no condition Ready or Available: wait, or give its stage "isReady"')
  const { observedGeneration = status.observedGeneration } = found
  if (observedGeneration !== undefined && observedGeneration < (metadata.generation ?? 0))
    return waits('its controller has not seen its last change')
  return found.status === 'True' ? READY : waits(`${found.type} is ${found.status}${wordsOf(found)}`)
}
