import { type AgentPod, lostAt } from './agent-pod.ts'
import { obstacleOf } from './agent-runs.ts'

/** The failed runs of the agent in a row, for one generation of the spec. */
export interface Failures {
  count: number
  /** A timestamp as in RFC 3339. */
  lastAt: string | undefined
}

interface Tried {
  metadata: { generation?: number }
  status: { failures?: number | undefined; failedGeneration?: number | undefined; lastFailureDate?: string | undefined }
}

/** The backoff limit, the same as for a Job. */
const MOST = 6
const FIRST_PAUSE_S = 10
const LAST_PAUSE_S = 360

/** Returns the failures of this generation. An edit of the spec resets them. */
export function failuresOf({ metadata, status: { failures = 0, failedGeneration, lastFailureDate } }: Tried): Failures {
  return { count: failedGeneration === metadata.generation ? failures : 0, lastAt: lastFailureDate }
}

/** Whether no attempt follows until the spec is edited. */
export const isGivenUp = ({ count }: Failures): boolean => count > MOST

/** Returns the time of the next attempt: 10 s, 20 s, 40 s … 6 min after the last failure. */
export function retryAt({ count, lastAt }: Failures): Date {
  const pause = Math.min(FIRST_PAUSE_S * 2 ** (count - 1), LAST_PAUSE_S)
  return new Date((Date.parse(lastAt ?? '') || 0) + pause * 1000)
}

/** Returns the part of a status that counts a failure of this pod. */
export function failureStatus(object: Tried, pod: AgentPod, at: Date) {
  return {
    succeeded: false,
    failures: failuresOf(object).count + 1,
    lastFailureDate: at.toISOString(),
    failedGeneration: object.metadata.generation,
    lastPod: pod.metadata.name,
  }
}

/** The progress of a run that has not ended: its node is lost, or it waits for an obstacle, if there is one. */
export type Progress =
  | { lost: string; at: Date }
  | { obstacle: { reason: string; message: string } | undefined; lostAt: Date }

export function progressOf(pod: AgentPod, now: Date): Progress {
  const at = lostAt(pod)
  return now < at
    ? { obstacle: obstacleOf(pod), lostAt: at }
    : { lost: `pod ${pod.metadata.name} has not ended at its deadline: is its node lost?`, at }
}
