import { compareVersions } from '#events'
import { finalizerOfReconciler, PAUSED_ANNOTATION, type ReconcilerSpec, reconcilerFinalizers } from '#spec'
import { finalizerPatch } from '../keys.ts'
import { isSelected } from './reconciler-rules.ts'
import type { ReconcilerSituation, Situation } from './situation.ts'
import { kubectlName, nameOf, type Rule, shown, step } from './situation.ts'

const START_BRIDGE = step('Start a bridge, or look why it does not run.', 'fairlead bridge')

export const kindGone: Rule = ({ isKindServed, target, reconcilers }) =>
  isKindServed === false && reconcilers.length > 0
    ? [
        {
          reason: 'KindNotServed',
          level: 'problem',
          message: `the API server has no ${target.kind}: its definition was deleted`,
          next: step('Install the definition again, with the function.', 'fairlead install -f FILE'),
        },
      ]
    : []

export const absent: Rule = ({ object, target, elsewhere, isKindServed, apiAway }) => {
  if (object !== undefined || isKindServed === false || apiAway !== undefined) return []
  const there = elsewhere.length === 0 ? '' : `; there is ${elsewhere.slice(0, 5).join(', ')}`
  const where = target.namespace === undefined ? '' : ` in the namespace ${target.namespace}`
  const [first] = elsewhere
  const [namespace, name] = first?.split('/') ?? []
  const next =
    first === undefined
      ? step('Look at what there is.', `kubectl get ${kubectlName(target).split(' ')[0]} -A`)
      : step('Name the one that there is.', `fairlead explain ${target.ref.resource}/${name} -n ${namespace}`)
  return [
    {
      reason: 'NotFound',
      level: 'problem',
      message: `there is no ${target.kind} ${target.name}${where}${there}`,
      next,
    },
  ]
}

export const unreconciled: Rule = ({ object, reconcilers, target, natsAway, apiAway }) => {
  if (object === undefined || reconcilers.length > 0) return []
  if (apiAway !== undefined && natsAway !== undefined) return []
  const controller = object.metadata.ownerReferences?.find((owner) => owner.controller === true)
  const message = `no Reconciler is for ${target.kind}`
  if (controller === undefined)
    return [
      {
        reason: 'NoReconciler',
        level: 'problem',
        message,
        next: step('Install the function that is for it.', 'fairlead install -f FILE'),
      },
    ]
  const { kind, name } = controller
  const where = target.namespace === undefined ? '' : ` -n ${target.namespace}`
  const next = step(`Ask for its owner, the ${kind} ${name}.`, `fairlead explain ${kind.toLowerCase()}/${name}${where}`)
  return [{ reason: 'NoReconciler', level: 'unknown', message: `${message}; it belongs to the ${kind} ${name}`, next }]
}

export const paused: Rule = ({ object, target, reconcilers }) =>
  object?.metadata.annotations?.[PAUSED_ANNOTATION] === 'true' && reconcilers.length > 0
    ? [
        {
          reason: 'Paused',
          level: 'problem',
          message: `the annotation ${PAUSED_ANNOTATION} is "true": no function is called, and its deletion waits`,
          next: step('Let it run again.', `kubectl annotate ${kubectlName(target)} ${PAUSED_ANNOTATION}-`),
        },
      ]
    : []

export const suspended: Rule = ({ object, target }) =>
  (object?.spec as { suspend?: unknown } | undefined)?.suspend === true
    ? [
        {
          reason: 'Suspended',
          level: 'note',
          message: 'its spec.suspend is true: the function runs, and does what it has for that case',
          next: step('Resume it.', `kubectl patch ${kubectlName(target)} --type merge -p '{"spec":{"suspend":false}}'`),
        },
      ]
    : []

export const namespaceTerminating: Rule = ({ isNamespaceTerminating, target, object }) =>
  isNamespaceTerminating === true && object !== undefined
    ? [
        {
          reason: 'NamespaceTerminating',
          level: 'problem',
          message: `the namespace ${target.namespace} is being deleted: nothing can be created in it`,
          next: step(
            'See what the namespace waits for.',
            `kubectl get namespace ${target.namespace} -o jsonpath='{.status.conditions}'`,
          ),
        },
      ]
    : []

/** Reports finalizers of Reconcilers that do not exist: no process removes these finalizers. */
export const orphaned: Rule = ({ object, finalizers, target }) => {
  if (object === undefined || finalizers === undefined) return []
  const orphans = reconcilerFinalizers(object).filter((finalizer) => !finalizers.includes(finalizer))
  const isGoing = object.metadata.deletionTimestamp !== undefined
  return orphans.map((finalizer) => ({
    reason: 'FinalizerOrphaned',
    level: isGoing ? ('problem' as const) : ('note' as const),
    message: `${isGoing ? 'it is being deleted, and waits' : 'when it is deleted, it will wait'} for the finalizer ${finalizer} of a Reconciler that does not exist`,
    next: step(
      'Create the Reconciler again (fairlead install -f FILE), which cleans up; or remove the finalizer, and what the function would clean up stays.',
      finalizerPatch({ ref: target.ref, object, finalizer }),
    ),
  }))
}

export const deleting: Rule = (situation) => {
  const { object, reconcilers } = situation
  const { deletionTimestamp, finalizers = [] } = object?.metadata ?? {}
  if (object === undefined || deletionTimestamp === undefined) return []
  const former = (one: ReconcilerSituation) =>
    (isSelected(one, situation) !== false && (one.object.spec as Partial<ReconcilerSpec>)?.formerFinalizers) || []
  const finalizes = (one: ReconcilerSituation) =>
    [finalizerOfReconciler(one.object), ...former(one)].some((finalizer) => finalizers.includes(finalizer))
  const ours = reconcilers.filter(finalizes)
  const replaced = new Set(reconcilers.flatMap(former))
  const isOurs = (finalizer: string) => finalizer.startsWith('fairlead.dev/') || replaced.has(finalizer)
  const others = finalizers.filter((finalizer) => !isOurs(finalizer) && finalizer !== 'foregroundDeletion')
  const waits = ours.map(({ object: reconciler }) => ({
    reason: 'Finalizing',
    level: 'pending' as const,
    reconciler: nameOf(reconciler),
    message: `it is being deleted since ${deletionTimestamp}, and waits for its finalize`,
    next: step('Wait until the function has cleaned up; the findings show what it waits for.'),
  }))
  const foreground = finalizers.includes('foregroundDeletion')
    ? [
        {
          reason: 'DeletingDependents',
          level: 'pending' as const,
          message: 'it is deleted after what it owns (foregroundDeletion)',
          next: step('Wait for the garbage collector; the remaining objects are below.'),
        },
      ]
    : []
  if (others.length === 0) return [...waits, ...foreground]
  return [
    ...waits,
    {
      reason: 'FinalizerOfOthers',
      level: 'problem',
      message: `it is being deleted since ${deletionTimestamp}, and waits for ${others.join(', ')}, which is not Fairlead's`,
      next: step(
        `See to the controller that removes ${others[0]}: is it running?`,
        `kubectl get ${kubectlName(situation.target)} -o jsonpath='{.metadata.finalizers}'`,
      ),
    },
    ...foreground,
  ]
}

/** Reports that EVENTS has an older version of the object, or none: no run can see the version of the API server. */
export const behind: Rule = (situation) => {
  const { object, storedVersion, natsAway, apiAway, reconcilers, target } = situation
  const isWatched = reconcilers.some((one) => !one.isElsewhere && isSelected(one, situation) === true)
  if (object === undefined || natsAway !== undefined || apiAway !== undefined || !isWatched) return []
  const version = object.metadata.resourceVersion ?? ''
  if (storedVersion === undefined)
    return [
      {
        reason: 'NotInEvents',
        level: 'problem',
        message: `EVENTS does not have ${shown(target)}: no bridge has seen it`,
        next: START_BRIDGE,
      },
    ]
  if ((compareVersions(storedVersion, version) ?? 0) >= 0) return []
  return [
    {
      reason: 'BridgeBehind',
      level: 'problem',
      message: `EVENTS has version ${storedVersion}, the API server ${version}: a bridge has not seen the last change`,
      next: START_BRIDGE,
    },
  ]
}

export const unread: Rule = ({ letters, target }) =>
  letters.map(({ id, reconciler, reason, detail }) => ({
    reason: 'DeadLetter',
    level: 'problem',
    reconciler,
    message: `dead letter ${id} (${reason}) is about ${shown(target)}: ${detail}`,
    next: step('Look at the letter, fix its cause, and put it back.', `fairlead dead replay ${id}`),
  }))

/** Reports servers that are unreachable. It is the last rule, since earlier findings may contain the cause. */
export const away: Rule = ({ apiAway, natsAway }: Situation) => [
  ...(natsAway === undefined
    ? []
    : [
        {
          reason: 'NatsAway',
          level: 'unknown' as const,
          message: `NATS cannot be asked (${natsAway}): queue, last run, servers and dead letters are not known. If the platform cannot reach it either, nothing runs and nothing is lost`,
          next: step('See whether nats-server runs, and whether NATS_URL (--nats) names it.', 'fairlead queue ls'),
        },
      ]),
  ...(apiAway === undefined
    ? []
    : [
        {
          reason: 'ApiServerAway',
          level: 'unknown' as const,
          message: `the API server cannot be asked (${apiAway}): the object is shown as EVENTS has it; rights, Events and what others changed are not known`,
          next: step('See whether the API server answers, and whether the kubeconfig names it.', 'kubectl version'),
        },
      ]),
]
