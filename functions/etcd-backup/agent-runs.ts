import { z } from 'zod'
import type { AgentPod } from './agent-pod.ts'

const stored = z.object({
  path: z.string(),
  size: z.int(),
  sha256: z.string(),
  etcdRevision: z.int(),
  etcdVersion: z.string().optional(),
  time: z.iso.datetime().optional(),
  ahead: z.array(z.string()).optional(),
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
export function obstacleOf({ status }: AgentPod): { reason: string; message: string } | undefined {
  const waiting = status?.containerStatuses?.find(({ state }) => state?.waiting)?.state?.waiting
  const unscheduled = status?.conditions?.find(({ type, status }) => type === 'PodScheduled' && status === 'False')
  const { reason, message = '' } = waiting ?? unscheduled ?? {}
  if (reason === undefined || reason === 'ContainerCreating' || reason === 'PodInitializing') return undefined
  return { reason, message }
}
