import { type Attempts, endingOf, endOf } from './attempts.ts'
import type { PodObject } from './pod.ts'
import type { AtObject, AtOutcome } from './resource.ts'

export function done(object: AtObject, pod: PodObject, now: Date): AtOutcome {
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

export type FailureReason = 'BackoffLimitExceeded' | 'DeadlineExceeded' | 'StartingDeadlineExceeded'

/** Returns the failure with the result of the last attempt. */
export function failed(object: AtObject, attempts: Attempts, now: Date, because: FailureReason): AtOutcome {
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

export function failedFor(object: AtObject, now: Date, reason: FailureReason, message: string): AtOutcome {
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
