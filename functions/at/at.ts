import { Pod, reconciler } from 'fairlead'
import { type Attempts, attemptsOf, endingOf, endOf, obstacleOf, type PodObject, podFor } from './pod.ts'
import { At, type AtObject, type AtOutcome } from './resource.ts'
import { dueTime } from './schedule.ts'

const FIRST_RETRY_S = 10
const LAST_RETRY_S = 360
/**
 * How long the kubelet has, beyond the pod's termination grace period, to end the pod at its deadline. After that, the
 * At ends it.
 */
const KUBELET_GRACE_S = 30
const DEFAULT_TERMINATION_S = 30

/** Runs a command once, at its time, in a pod. The phase goes from PENDING to RUNNING to DONE or FAILED, never back. */
export const at = reconciler({
  name: 'at',
  for: At,
  owns: [Pod],
  writes: ['Deletion'],
  reconcile({ object, owned, refused, now }) {
    const { phase } = object.status
    if (phase === 'DONE' || phase === 'FAILED') return afterEnd(object, now)
    const attempts = attemptsOf(owned(Pod), object.status)
    const isRefused = refused(Pod).length > 0
    return verdict(object, attempts, now, isRefused) ?? underWay(object, attempts, now) ?? start(object, now)
  },
})

/**
 * Deletes the object when its TTL has expired, as for a Job; its pods are deleted with it. Nothing else happens after
 * the end.
 */
function afterEnd({ spec, status }: AtObject, now: Date): AtOutcome | undefined {
  if (spec.ttlSecondsAfterFinished === undefined || status.completionTime === undefined) return
  const end = new Date(Date.parse(status.completionTime) + spec.ttlSecondsAfterFinished * 1000)
  return now < end ? { requeueAt: end } : { deleteObject: true }
}

function verdict(object: AtObject, attempts: Attempts, now: Date, isRefused: boolean): AtOutcome | undefined {
  const { spec } = object
  const { succeeded, latestFailed, failures } = attempts
  if (succeeded) return done(object, succeeded, now)
  if (latestFailed?.status?.reason === 'DeadlineExceeded') return failed(object, attempts, now, 'DeadlineExceeded')
  if (failures > spec.backoffLimit) return failed(object, attempts, now, 'BackoffLimitExceeded')
  const left = secondsLeft(object, attempts, now)
  if (left === undefined || left > (attempts.active ? -graceOf(object) : 0)) return undefined
  const message = `it has not ended within ${spec.activeDeadlineSeconds} s`
  // A pod that still runs is pruned. While the API server refuses the deletion, the At has not ended.
  const apply = attempts.pods.filter((pod) => pod !== attempts.active)
  return isRefused ? { apply } : { ...failedFor(object, now, 'DeadlineExceeded', message), apply }
}

function underWay(object: AtObject, attempts: Attempts, now: Date): AtOutcome | undefined {
  const { active, latestFailed, failures, pods } = attempts
  const left = secondsLeft(object, attempts, now)
  if (active) {
    const deadline = left === undefined ? {} : { requeueAfter: Math.max(0, left + graceOf(object)) }
    return { status: running(object, attempts, active), ...resumed(object), ...deadline }
  }
  if (failures === 0) return undefined
  const retryAt = new Date((latestFailed ? endOf(latestFailed) : 0) + retryDelay(failures) * 1000)
  if (latestFailed && now < retryAt) return { status: running(object, attempts, latestFailed), requeueAt: retryAt }
  return { apply: [...pods, podFor(object, failures, left)] }
}

async function start(object: AtObject, now: Date): Promise<AtOutcome> {
  const { spec, status } = object
  const pod = podFor(object, 0, spec.activeDeadlineSeconds)
  if (status.phase === 'RUNNING') return { apply: [pod] }

  const due = await dueTime(spec)
  const pending = { phase: 'PENDING' as const, scheduledTime: due.toISOString() }
  if (spec.suspend === true)
    return { status: pending, conditions: [{ type: 'Suspended', status: 'True', reason: 'Suspended' }] }
  const conditions = resumed(object)
  if (now < due) return { status: pending, requeueAt: due, ...conditions }

  const deadline = due.getTime() + (spec.startingDeadlineSeconds ?? Infinity) * 1000
  if (now.getTime() > deadline)
    return failedFor(
      object,
      now,
      'StartingDeadlineExceeded',
      `it was due at ${due.toISOString()}, more than ${spec.startingDeadlineSeconds} s ago`,
    )
  return { apply: [pod], ...conditions }
}

const resumed = ({ status: { conditions = [] } }: AtObject): Pick<AtOutcome, 'conditions'> =>
  conditions.some(({ type, status }) => type === 'Suspended' && status === 'True')
    ? { conditions: [{ type: 'Suspended', status: 'False', reason: 'Resumed' }] }
    : {}

function running({ status }: AtObject, { failures, startTime }: Attempts, pod: PodObject): AtOutcome['status'] {
  return {
    phase: 'RUNNING',
    scheduledTime: status.scheduledTime,
    startTime,
    podName: pod.metadata.name,
    failures: failures || undefined,
    reason: obstacleOf(pod),
  }
}

function graceOf({ spec }: AtObject): number {
  const termination = spec.template?.spec?.['terminationGracePeriodSeconds']
  return KUBELET_GRACE_S + (typeof termination === 'number' ? termination : DEFAULT_TERMINATION_S)
}

/** Returns the delay before the next attempt, the same as for a Job. */
const retryDelay = (failures: number): number => Math.min(FIRST_RETRY_S * 2 ** (failures - 1), LAST_RETRY_S)

function secondsLeft({ spec }: AtObject, { startTime }: Attempts, now: Date): number | undefined {
  if (spec.activeDeadlineSeconds === undefined || startTime === undefined) return spec.activeDeadlineSeconds
  return spec.activeDeadlineSeconds - Math.floor((now.getTime() - Date.parse(startTime)) / 1000)
}

function done(object: AtObject, pod: PodObject, now: Date): AtOutcome {
  const { exitCode } = endingOf(pod)
  return {
    status: {
      ...soFar(object),
      phase: 'DONE',
      podName: pod.metadata.name,
      startTime: object.status.startTime ?? pod.metadata.creationTimestamp,
      completionTime: rfc3339(endOf(pod) || now.getTime()),
      exitCode,
    },
    conditions: [{ type: 'Complete', status: 'True', reason: 'Completed' }],
  }
}

type FailureReason = 'BackoffLimitExceeded' | 'DeadlineExceeded' | 'StartingDeadlineExceeded'

/** Returns the failure with the result of the last attempt. */
function failed(object: AtObject, attempts: Attempts, now: Date, because: FailureReason): AtOutcome {
  const { latestFailed: pod, failures, startTime } = attempts
  if (pod === undefined) return failedFor(object, now, because, `${failures} attempts have failed`)
  const { exitCode, reason, message } = endingOf(pod)
  const outcome = failedFor(object, now, because, message)
  return {
    ...outcome,
    status: {
      phase: 'FAILED',
      ...outcome.status,
      podName: pod.metadata.name,
      startTime,
      completionTime: rfc3339(endOf(pod) || now.getTime()),
      failures,
      exitCode,
      reason,
    },
  }
}

function failedFor(object: AtObject, now: Date, reason: FailureReason, message: string): AtOutcome {
  return {
    status: { ...soFar(object), phase: 'FAILED', completionTime: rfc3339(now.getTime()), reason, message },
    conditions: [{ type: 'Failed', status: 'True', reason, message }],
    events: [{ type: 'Warning', reason, message }],
  }
}

function soFar({ status: { scheduledTime, startTime, podName, failures } }: AtObject) {
  return { scheduledTime, startTime, podName, failures }
}

/** Formats a time in whole seconds, as Kubernetes does. */
const rfc3339 = (time: number): string => `${new Date(time).toISOString().slice(0, 19)}Z`
