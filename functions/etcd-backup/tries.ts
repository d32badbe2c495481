import { type AgentPod, lostAt } from './agent-pod.ts'
import { obstacleOf } from './agent-runs.ts'

/** Runs of the agent that have failed in a row, of one generation of the spec. */
export interface Failures {
  count: number
  /** RFC 3339. */
  lastAt: string | undefined
}

interface Tried {
  metadata: { generation?: number }
  status: { failures?: number | undefined; failedGeneration?: number | undefined; lastFailureDate?: string | undefined }
}

/** As a Job has it. */
const MOST = 6
const FIRST_PAUSE_S = 10
const LAST_PAUSE_S = 360

/** An edit is another try: failures before it do not count. */
export function failuresOf({ metadata, status: { failures = 0, failedGeneration, lastFailureDate } }: Tried): Failures {
  return { count: failedGeneration === metadata.generation ? failures : 0, lastAt: lastFailureDate }
}

/** Nothing is tried again until the spec is edited. */
export const isGivenUp = ({ count }: Failures): boolean => count > MOST

/** 10 s, 20 s, 40 s … 6 min after the last failure. */
export function retryAt({ count, lastAt }: Failures): Date {
  const pause = Math.min(FIRST_PAUSE_S * 2 ** (count - 1), LAST_PAUSE_S)
  return new Date((Date.parse(lastAt ?? '') || 0) + pause * 1000)
}

/** The part of a status that counts a failure of this pod. */
export function failureStatus(object: Tried, pod: AgentPod, at: Date) {
  return {
    succeeded: false,
    failures: failuresOf(object).count + 1,
    lastFailureDate: at.toISOString(),
    failedGeneration: object.metadata.generation,
    lastPod: pod.metadata.name,
  }
}

/** Of a run that has not ended: that its node is lost, or what it waits for, if anything. */
export type Progress =
  | { lost: string; at: Date }
  | { obstacle: { reason: string; message: string } | undefined; lostAt: Date }

export function progressOf(pod: AgentPod, now: Date): Progress {
  const at = lostAt(pod)
  return now < at
    ? { obstacle: obstacleOf(pod), lostAt: at }
    : { lost: `pod ${pod.metadata.name} has not ended at its deadline: is its node lost?`, at }
}
