import { atMost, type ConditionUpdate, Deployment, reconciler, resource, z } from 'fairlead'

const number = z.string().regex(/^[0-9]{1,9}(\.[0-9]{1,6})?$/)

/** A Deployment has as many replicas as an outside metric asks for, and none while there is nothing to do. */
export const ScaledObject = resource({
  group: 'keda.sh',
  version: 'v1alpha1',
  kind: 'ScaledObject',
  plural: 'scaledobjects',
  shortNames: ['so'],
  spec: z.object({
    scaleTargetRef: z.object({ name: z.string().min(1) }).describe('A Deployment of the same namespace.'),
    pollingInterval: z.int32().min(1).default(30),
    cooldownPeriod: z.int32().min(0).default(300),
    minReplicaCount: z.int32().min(0).default(0),
    maxReplicaCount: z.int32().min(1).default(100),
    advanced: z.object({ restoreToOriginalReplicaCount: z.boolean().default(false) }).prefault({}),
    triggers: z
      .array(
        z.object({
          type: z.enum(['metrics-api']),
          metadata: z.object({
            url: z.string().regex(/^https?:\/\//),
            valueLocation: z.string().min(1).describe('The path of the number in the answer: components.worker.tasks'),
            targetValue: number.describe('How much of it one replica takes.'),
            activationTargetValue: number.default('0'),
          }),
        }),
      )
      .length(1),
  }),
  status: z.object({
    originalReplicaCount: z.int32().optional(),
    phase: z.enum(['Active', 'CoolingDown', 'Idle']).optional(),
    cooldownEnd: z.string().optional().describe('Until then a replica stays although nothing is to do.'),
  }),
  rules: [atMost('.spec.minReplicaCount', '.spec.maxReplicaCount')],
  columns: [{ name: 'Phase', path: '.status.phase' }],
})
type Scaled = ReturnType<typeof ScaledObject.parse>

const Target = { ...Deployment, byName: 'spec.scaleTargetRef.name' } as const

/** Returns the number at a path of the answer. */
function numberAt(answer: unknown, path: string): number {
  const found = path.split('.').reduce<unknown>((one, field) => Object(one)[field], answer)
  const number = Number(found ?? Number.NaN)
  if (!Number.isFinite(number)) throw new Error(`no number at ${path}`)
  return number
}

/** It cools down from the run on that no longer finds it active. What never was active is idle at once. */
function phaseOf(
  { spec, status }: Scaled,
  isActive: boolean,
  now: Date,
): Pick<Scaled['status'], 'phase' | 'cooldownEnd'> {
  if (isActive) return { phase: 'Active' }
  const end = new Date(now.getTime() + spec.cooldownPeriod * 1000).toISOString()
  const cooldownEnd = status.phase === 'Active' ? end : status.cooldownEnd
  if (cooldownEnd === undefined || new Date(cooldownEnd) <= now) return { phase: 'Idle' }
  return { phase: 'CoolingDown', cooldownEnd }
}

const ready = (status: 'True' | 'False', reason: string, message = ''): ConditionUpdate[] => [
  { type: 'Ready', status, reason, message },
]

export const scaledObject = reconciler({
  name: 'scaled-object',
  for: ScaledObject,
  related: [Target],
  acts: [{ ...Deployment, act: 'Scale' }],
  external: {
    async read({ object, signal }): Promise<{ value: number } | { error: string }> {
      const [trigger] = object.spec.triggers
      try {
        const response = await fetch(trigger?.metadata.url ?? '', { signal, redirect: 'error' })
        if (!response.ok) return { error: `the metric answers ${response.status}` }
        return { value: numberAt(await response.json(), trigger?.metadata.valueLocation ?? '') }
      } catch (error) {
        return { error: `the metric cannot be read: ${(error as Error).message}` }
      }
    },
    timeoutSeconds: 5,
  },
  reconcile({ object, related, external, now }) {
    const { metadata, spec, status } = object
    const [target] = related(Target)
    const requeueAfter = spec.pollingInterval
    if (metadata.annotations?.['autoscaling.keda.sh/paused'] === 'true')
      return { conditions: ready('True', 'ScaledObjectPaused') }
    if (target === undefined)
      return { conditions: ready('False', 'TargetNotFound', `no Deployment ${spec.scaleTargetRef.name}`) }
    if ('error' in external) return { conditions: ready('False', 'TriggerError', external.error), requeueAfter }
    const { targetValue = '1', activationTargetValue = '0' } = spec.triggers[0]?.metadata ?? {}
    const { phase, cooldownEnd } = phaseOf(object, external.value > Number(activationTargetValue), now)
    const needed = Math.ceil(external.value / (Number(targetValue) || 1))
    const atWork = Math.min(Math.max(needed, spec.minReplicaCount, 1), spec.maxReplicaCount)
    const replicas = phase === 'Idle' ? spec.minReplicaCount : atWork
    const present = target.spec?.replicas ?? 1
    return {
      act: status.phase === undefined || present === replicas ? [] : [{ act: 'Scale', on: target, replicas }],
      status: { originalReplicaCount: status.originalReplicaCount ?? present, phase, cooldownEnd },
      conditions: ready('True', 'ScaledObjectReady'),
      requeueAfter,
      ...(cooldownEnd !== undefined && { requeueAt: new Date(cooldownEnd) }),
    }
  },
  finalize({ object: { spec, status }, related }) {
    const [target] = related(Target)
    const replicas = status.originalReplicaCount
    if (!spec.advanced.restoreToOriginalReplicaCount || replicas === undefined) return undefined
    return target === undefined || target.spec?.replicas === replicas
      ? undefined
      : { act: [{ act: 'Scale', on: target, replicas }] }
  },
})
