import { type ObservedBy, Pod, shortName, TerminalError } from 'fairlead'
import type { AtObject, AtSpec, AtStatus } from './resource.ts'

export type PodObject = ObservedBy<typeof Pod>
type Container = NonNullable<PodObject['spec']>['containers'][number]

const podName = (at: string, attempt: number): string => {
  const suffix = attempt === 0 ? '-pod' : `-pod-${attempt}`
  return `${shortName(at, LONGEST_NAME - suffix.length)}${suffix}`
}

/** Returns the number of the attempt, from 0; see podName(). */
const attemptOf = (pod: string): number => Number(/-pod-(\d+)$/.exec(pod)?.[1] ?? 0)

/**
 * Returns the pod of an attempt, counted from 0. `seconds` limits its run time. Throws a TerminalError for a command
 * that no container could start, and for a template that would run it again by itself.
 */
export function podFor({ metadata, spec }: AtObject, attempt: number, seconds: number | undefined): PodObject {
  const { metadata: own = {}, spec: { containers = [], restartPolicy, ...others } = {} } = spec.template ?? {}
  if (restartPolicy !== undefined && restartPolicy !== 'Never')
    throw new TerminalError(
      `spec.template.spec.restartPolicy is ${JSON.stringify(restartPolicy)}: leave it out, and give spec.backoffLimit`,
      { reason: 'InvalidTemplate' },
    )
  const [first, ...rest] = containers as Partial<Container>[]
  return Pod.of({
    metadata: {
      ...(own.annotations && { annotations: own.annotations }),
      name: podName(metadata.name, attempt),
      labels: { ...own.labels, app: shortName(metadata.name, LONGEST_LABEL) },
    },
    spec: {
      ...others,
      containers: [{ name: 'busybox', image: 'busybox', ...first, ...commandOf(spec) }, ...(rest as Container[])],
      restartPolicy: 'Never',
      ...(seconds !== undefined && { activeDeadlineSeconds: seconds }),
    },
  })
}

function commandOf({ command, shell = false, args }: AtSpec): Pick<Container, 'command' | 'args'> {
  const given = args === undefined ? {} : { args }
  if (command === undefined && args !== undefined && !shell) return given
  if (command === undefined) throw invalidCommand('spec.command is missing')
  if (shell) return { command: ['/bin/sh', '-c', command, 'sh'], ...given }
  const words = command.split(' ')
  if (words[0] === '') throw invalidCommand(`spec.command is ${JSON.stringify(command)}: its first word is empty`)
  return { command: words, ...given }
}

const invalidCommand = (what: string): TerminalError =>
  new TerminalError(`${what}: give a program and its arguments, such as echo YAY`, { reason: 'InvalidCommand' })

/**
 * The longest name of a pod. The API accepts 253 characters, but no kubelet runs such a pod: it keeps the pod's logs in
 * a folder NAMESPACE_NAME_UID, whose name has at most 255 bytes.
 */
const LONGEST_NAME = 255 - '_'.length - 36 - '_'.length - 63
const LONGEST_LABEL = 63

/** The state of the pods of an At. */
export interface Attempts {
  pods: readonly PodObject[]
  succeeded: PodObject | undefined
  latestFailed: PodObject | undefined
  /** The number of failed attempts, including those whose pods a user has deleted. */
  failures: number
  /** An attempt that has not ended. If its pod is being deleted, the attempt must be made again. */
  active: PodObject | undefined
  /** When the first pod was created. */
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

/**
 * Whether a pod has failed. A pod that fails while it is being deleted was stopped from outside, so its command must
 * run again.
 */
const hasFailed = ({ metadata, status }: PodObject): boolean =>
  status?.phase === 'Failed' && metadata.deletionTimestamp === undefined

const byName = (one: PodObject, other: PodObject): number => one.metadata.name.localeCompare(other.metadata.name)

interface Ending {
  exitCode: number | undefined
  reason: string
  message: string
}

/** Returns how a pod ended, with the reason of its first failed container. */
export function endingOf({ metadata, status }: PodObject): Ending {
  const ended = (status?.containerStatuses ?? []).flatMap(({ state }) => state?.terminated ?? [])
  const told = ended.find(({ exitCode }) => exitCode !== 0) ?? ended[0]
  const reason = status?.reason ?? told?.reason ?? status?.phase ?? 'Unknown'
  const code = told === undefined ? '' : ` with exit code ${told.exitCode}`
  const words = status?.message ?? told?.message ?? ''
  const message = `pod ${metadata.name} ended${code} (${reason})${words === '' ? '' : `: ${words}`}`
  return { exitCode: told?.exitCode, reason, message }
}

/** Returns when the last container ended, in epoch milliseconds; 0 if it is not known. */
export function endOf({ status }: PodObject): number {
  const times = (status?.containerStatuses ?? []).map(({ state }) => Date.parse(state?.terminated?.finishedAt ?? ''))
  return Math.max(0, ...times.filter((time) => !Number.isNaN(time)))
}

/** The kubelet reports the first reason, and between two attempts the second. */
const PULLING: Record<string, string> = { ErrImagePull: 'ImagePullBackOff' }

/** Returns the reason why an existing pod does not run. */
export function obstacleOf({ status }: PodObject): string | undefined {
  const waiting = status?.containerStatuses?.find(({ state }) => state?.waiting)?.state?.waiting?.reason
  const unscheduled = status?.conditions?.find(({ type, status }) => type === 'PodScheduled' && status === 'False')
  const reason = waiting ?? unscheduled?.reason
  return reason === 'ContainerCreating' || reason === 'PodInitializing' ? undefined : (PULLING[reason ?? ''] ?? reason)
}
