import { type ObservedBy, Pod, shortName, TerminalError } from '#sdk'
import type { AtObject, AtSpec } from './resource.ts'

export type PodObject = ObservedBy<typeof Pod>
type Container = NonNullable<PodObject['spec']>['containers'][number]

const podName = (at: string, attempt: number): string => {
  const suffix = attempt === 0 ? '-pod' : `-pod-${attempt}`
  return `${shortName(at, LONGEST_NAME - suffix.length)}${suffix}`
}

/** Returns the number of the attempt, from 0; see podName(). */
export const attemptOf = (pod: string): number => Number(/-pod-(\d+)$/.exec(pod)?.[1] ?? 0)

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
