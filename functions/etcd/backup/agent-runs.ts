import { z } from 'fairlead'
import { type AgentPod, lostAt } from './agent-pod.ts'

const stored = z.object({
  path: z.string(),
  size: z.int(),
  sha256: z.string(),
  etcdRevision: z.int(),
  etcdVersion: z.string().optional(),
  time: z.iso.datetime().optional(),
  ahead: z.array(z.string()).optional(),
  namesakes: z.object({ first: z.string(), count: z.int() }).optional(),
  retentionError: z.string().optional(),
})
export type StoredSnapshot = z.output<typeof stored>
const failure = z.object({ error: z.string() })

export type Ending = { succeeded: true; report: StoredSnapshot } | { succeeded: false; message: string }

/** The agent's runs, except the one whose result is already recorded. */
export interface AgentRuns {
  active: AgentPod | undefined
  /** The latest run that has ended and is not yet recorded. */
  ended: AgentPod | undefined
}

export function runsOf(pods: readonly AgentPod[], known: string | undefined): AgentRuns {
  const byAge = [...pods].sort(
    (one, other) => startOf(one) - startOf(other) || one.metadata.name.localeCompare(other.metadata.name),
  )
  return {
    active: byAge.findLast((pod) => !hasEnded(pod) && pod.metadata.name !== known),
    ended: byAge.findLast((pod) => hasEnded(pod) && pod.metadata.name !== known),
  }
}

const hasEnded = ({ status }: AgentPod): boolean => status?.phase === 'Succeeded' || status?.phase === 'Failed'

/** Returns when the pod was created, in epoch milliseconds. */
const startOf = ({ metadata }: AgentPod): number => Date.parse(metadata.creationTimestamp ?? '') || 0

/**
 * Returns when the container of a pod ended, in epoch milliseconds. For a pod that never ran, returns when it was
 * created.
 */
export function endOf(pod: AgentPod): number {
  const times = (pod.status?.containerStatuses ?? []).map(({ state }) =>
    Date.parse(state?.terminated?.finishedAt ?? ''),
  )
  return Math.max(startOf(pod), ...times.filter((time) => !Number.isNaN(time)))
}

/** Returns how a run ended, from the agent's own report, or else from the pod's status. */
export function endingOf({ metadata, status }: AgentPod): Ending {
  const ended = status?.containerStatuses?.find(({ state }) => state?.terminated)?.state?.terminated
  const said = parsed(ended?.message)
  const report = stored.safeParse(said)
  if (status?.phase === 'Succeeded' && report.success) return { succeeded: true, report: report.data }
  const error = failure.safeParse(said)
  if (error.success) return { succeeded: false, message: error.data.error }
  const words = [status?.reason ?? ended?.reason, status?.message ?? ended?.message].filter(
    (word) => word !== undefined && word !== '',
  )
  return { succeeded: false, message: `pod ${metadata.name} ended without a report: ${words.join(': ') || 'Unknown'}` }
}

function parsed(text = ''): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Returns the reason why an existing pod does not run. */
function obstacleOf({ status }: AgentPod): { reason: string; message: string } | undefined {
  const waiting = status?.containerStatuses?.find(({ state }) => state?.waiting)?.state?.waiting
  const unscheduled = status?.conditions?.find(({ type, status }) => type === 'PodScheduled' && status === 'False')
  const { reason, message = '' } = waiting ?? unscheduled ?? {}
  if (reason === undefined || reason === 'ContainerCreating' || reason === 'PodInitializing') return undefined
  return { reason, message }
}

/** The failed runs of the agent in a row, for one generation of the spec. */
export interface Failures {
  count: number
  /** A timestamp as in RFC 3339. */
  lastAt: string | undefined
}

interface Tried {
  metadata: { generation?: number }
  status: { failures?: number; failedGeneration?: number; lastFailureDate?: string }
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
