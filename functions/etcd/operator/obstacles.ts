import { isGoing, isReady } from './cluster.ts'
import type { PodObject } from './parts.ts'
import type { Step } from './step.ts'

type Container = NonNullable<NonNullable<PodObject['status']>['containerStatuses']>[number]

/** A container waits for these reasons without a fault. */
const USUAL = ['PodInitializing', 'ContainerCreating']

/** Returns the step with the reasons why pods do not run: a node is missing, an image, or a process has ended. */
export function withObstacles(step: Step | undefined, pods: readonly PodObject[]): Step | undefined {
  const found = pods
    .filter((pod) => !isGoing(pod) && !isReady(pod))
    .map((pod) => [pod.metadata.name, obstaclesOf(pod).join('; ')] as const)
    .filter(([, why]) => why !== '')
  if (step === undefined || found.length === 0) return step
  return { ...step, message: [step.message, ...found.map(([name, why]) => `pod ${name}: ${why}`)].join('; ') }
}

/** Returns the reasons that Kubernetes and the processes of a pod report. */
function obstaclesOf({ status }: PodObject): string[] {
  const unscheduled = status?.conditions?.find(({ type, status }) => type === 'PodScheduled' && status === 'False')
  const containers = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])]
  return [...(unscheduled?.message ? [unscheduled.message] : []), ...containers.flatMap(faultOf)]
}

function faultOf({ name, state, lastState }: Container): string[] {
  const waiting = USUAL.includes(state?.waiting?.reason ?? '') ? undefined : state?.waiting
  const ended = lastState?.terminated
  const text = (...words: (string | undefined)[]) => words.filter(Boolean).join(': ')
  return [
    ...(waiting ? [text(`container ${name}`, waiting.reason, waiting.message)] : []),
    // Without a fault, a process ends when its image is changed.
    ...(ended && (waiting || ended.message)
      ? [text(`it ended with exit code ${ended.exitCode}`, ended.reason, ended.message)]
      : []),
  ]
}
