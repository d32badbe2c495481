import type { KubeObject } from '#contracts'
import { type Condition, conditionOf, conditionsOf, type Relative } from './situation.ts'

/** The health of an object, from the status that the controllers of Kubernetes report. */
export interface Health {
  is: 'healthy' | 'progressing' | 'failed' | 'missing' | 'unknown'
  why?: string
}

/** Reasons for waiting that do not resolve without an action. */
const STUCK =
  /^(?:ErrImagePull|ImagePullBackOff|InvalidImageName|CrashLoopBackOff|CreateContainer(?:Config)?Error|RunContainerError)$/

export function healthOf({ object, stuckPod }: Relative): Health {
  if (object === undefined) return { is: 'missing' }
  if (stuckPod) return { is: 'failed', why: `Pod ${stuckPod.metadata.name}: ${podHealth(stuckPod).why}` }
  if (object.metadata.deletionTimestamp !== undefined) return { is: 'progressing', why: 'it is being deleted' }
  const byKind = { Pod: podHealth, Job: jobHealth, Deployment: workloadHealth, StatefulSet: workloadHealth }
  const health = byKind[object.kind as keyof typeof byKind]
  return health === undefined ? byConditions(object) : health(object)
}

interface PodStatus {
  phase?: string
  reason?: string
  containerStatuses?: { name: string; ready?: boolean; state?: { waiting?: { reason?: string; message?: string } } }[]
}

function podHealth(pod: KubeObject): Health {
  const { phase = 'Pending', reason, containerStatuses = [] } = (pod.status ?? {}) as PodStatus
  if (phase === 'Succeeded') return { is: 'healthy', why: phase }
  if (phase === 'Failed') return { is: 'failed', why: reason ?? phase }
  const stuck = containerStatuses.find(({ state }) => STUCK.test(state?.waiting?.reason ?? ''))
  if (stuck) {
    const { reason: why, message = '' } = stuck.state?.waiting ?? {}
    return { is: 'failed', why: `${stuck.name}: ${why}${message === '' ? '' : ` ${message}`}` }
  }
  const scheduled = conditionOf(pod, 'PodScheduled')
  if (scheduled?.status === 'False') return { is: 'failed', why: wordsOf(scheduled) }
  const isReady = conditionOf(pod, 'Ready')?.status !== 'False'
  return phase === 'Running' && isReady ? { is: 'healthy' } : { is: 'progressing', why: phase }
}

function jobHealth(job: KubeObject): Health {
  const failed = conditionOf(job, 'Failed')
  if (failed?.status === 'True') return { is: 'failed', why: wordsOf(failed) }
  return conditionOf(job, 'Complete')?.status === 'True' ? { is: 'healthy', why: 'Complete' } : { is: 'progressing' }
}

interface Workload {
  observedGeneration?: number
  replicas?: number
  readyReplicas?: number
  updatedReplicas?: number
}

function workloadHealth(workload: KubeObject): Health {
  const { replicas: wanted = 1 } = (workload.spec ?? {}) as { replicas?: number }
  const { observedGeneration = 0, readyReplicas = 0 } = (workload.status ?? {}) as Workload
  const progressing = conditionOf(workload, 'Progressing')
  if (progressing?.reason === 'ProgressDeadlineExceeded') return { is: 'failed', why: wordsOf(progressing) }
  const failure = conditionOf(workload, 'ReplicaFailure')
  if (failure?.status === 'True') return { is: 'failed', why: wordsOf(failure) }
  const isSeen = observedGeneration >= (workload.metadata.generation ?? 0)
  const why = `${readyReplicas} of ${wanted} replicas are ready`
  return isSeen && readyReplicas >= wanted ? { is: 'healthy', why } : { is: 'progressing', why }
}

/** Judges an object by its conditions. An object without conditions is healthy as soon as it exists. */
function byConditions(object: KubeObject): Health {
  const ready = conditionsOf(object).find(({ type }) => type === 'Ready' || type === 'Available')
  if (ready === undefined) return { is: 'healthy' }
  if (ready.status === 'True') return { is: 'healthy' }
  return { is: ready.status === 'False' ? 'failed' : 'unknown', why: wordsOf(ready) }
}

/** Returns the reason and the message of a condition. A message that names the reason, such as the class of an error, is enough. */
export function wordsOf({ reason = '', message = '' }: Condition): string {
  const isNamed = message.split(': ').some((part) => part === reason || part.startsWith(`${reason} at `))
  return [isNamed ? '' : reason, message].filter((part) => part !== '').join(': ')
}
