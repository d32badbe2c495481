import { attemptOf, type PodObject } from './pod.ts'
import type { AtStatus } from './resource.ts'

/** What the pods of an At have come to so far. */
export interface Attempts {
  pods: readonly PodObject[]
  succeeded: PodObject | undefined
  latestFailed: PodObject | undefined
  /** Counts those, too, whose pods somebody has deleted since. */
  failures: number
  /** Not over yet; one whose pod is being deleted will have to be made again. */
  active: PodObject | undefined
  /** When its first pod was created. */
  startTime: string | undefined
}

export function attemptsOf(pods: readonly PodObject[], status: AtStatus): Attempts {
  const failed = pods.filter(hasFailed).sort((one, other) => endOf(one) - endOf(other) || byName(one, other))
  const [created] = pods.flatMap(({ metadata }) => metadata.creationTimestamp ?? []).sort()
  return {
    pods,
    succeeded: pods.find((pod) => pod.status?.phase === 'Succeeded'),
    latestFailed: failed.at(-1),
    failures: Math.max(status.failures ?? 0, ...failed.map(({ metadata }) => attemptOf(metadata.name) + 1)),
    active: pods.filter((pod) => !hasFailed(pod) && pod.status?.phase !== 'Succeeded').sort(byName)[0],
    startTime: status.startTime ?? created,
  }
}

/** A pod that fails while it is being deleted was stopped from outside: its command is still to be run. */
const hasFailed = ({ metadata, status }: PodObject): boolean =>
  status?.phase === 'Failed' && metadata.deletionTimestamp === undefined

const byName = (one: PodObject, other: PodObject): number => one.metadata.name.localeCompare(other.metadata.name)

interface Ending {
  exitCode: number | undefined
  reason: string
  message: string
}

/** How a pod ended; its first container that failed says why. */
export function endingOf({ metadata, status }: PodObject): Ending {
  const ended = (status?.containerStatuses ?? []).flatMap(({ state }) => state?.terminated ?? [])
  const told = ended.find(({ exitCode }) => exitCode !== 0) ?? ended[0]
  const reason = status?.reason ?? told?.reason ?? status?.phase ?? 'Unknown'
  const code = told === undefined ? '' : ` with exit code ${told.exitCode}`
  const words = status?.message ?? told?.message ?? ''
  const message = `pod ${metadata.name} ended${code} (${reason})${words === '' ? '' : `: ${words}`}`
  return { exitCode: told?.exitCode, reason, message }
}

/** When its last container ended, in milliseconds; 0: it does not say. */
export function endOf({ status }: PodObject): number {
  const times = (status?.containerStatuses ?? []).map(({ state }) => Date.parse(state?.terminated?.finishedAt ?? ''))
  return Math.max(0, ...times.filter((time) => !Number.isNaN(time)))
}

/** Kubelet says the first and, between two tries, the second. */
const PULLING: Record<string, string> = { ErrImagePull: 'ImagePullBackOff' }

/** Why a pod that is there does not run. */
export function obstacleOf({ status }: PodObject): string | undefined {
  const waiting = status?.containerStatuses?.find(({ state }) => state?.waiting)?.state?.waiting?.reason
  const unscheduled = status?.conditions?.find(({ type, status }) => type === 'PodScheduled' && status === 'False')
  const reason = waiting ?? unscheduled?.reason
  return reason === 'ContainerCreating' || reason === 'PodInitializing' ? undefined : (PULLING[reason ?? ''] ?? reason)
}
