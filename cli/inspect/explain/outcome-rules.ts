import type { KubeObject } from '#contracts'
import { CONTESTED, isFunctionFailing, RECONCILED } from '#reconcile'
import type { Row } from '../keys.ts'
import { healthOf, wordsOf } from './health.ts'
import { failureIn, mendingOf } from './key-rules.ts'
import { lasting } from './reconciler-rules.ts'
import {
  type Condition,
  conditionOf,
  type Finding,
  keyName,
  kubectlName,
  type NextStep,
  nameOf,
  type ReconcilerSituation,
  type ReportedEvent,
  type Rule,
  type Situation,
  shown,
  step,
  type Target,
} from './situation.ts'

/** Reports the condition `Reconciled` False of the last runs, with its fix. */
export const refused: Rule = (situation) => {
  const { object, now, reconcilers, target } = situation
  const condition = conditionOf(object, RECONCILED)
  if (condition?.status !== 'False') return []
  const { reason = 'Failed', lastTransitionTime } = condition
  const since = sinceText(lastTransitionTime, now)
  const [only, ...others] = reconcilers
  const retry =
    only !== undefined && others.length === 0
      ? `fairlead queue retry ${keyName(nameOf(only.object), target)}`
      : undefined
  const next =
    REFUSALS[reason]?.(condition, target, retry) ?? otherwise(condition, others.length === 0 ? only : undefined, retry)
  const failures = reconcilers.flatMap(({ rows = [] }) => rows).flatMap((row) => failureIn(row, situation) ?? [])
  const message = [`Reconciled is False${since}: ${wordsOf(condition)}`, ...failures].join('; ')
  return [{ reason, level: 'problem', message, next }]
}

const sinceText = (time: string | undefined, now: string): string =>
  time === undefined ? '' : ` since ${lasting(time, now)}`

type ToStep = (condition: Condition, target: Target, retry: string | undefined) => NextStep

const INSTALL = 'fairlead install -f FILE'
const edit =
  (say: string): ToStep =>
  (_, target) =>
    step(say, `kubectl edit ${kubectlName(target)}`)
const thenRetry =
  (say: string): ToStep =>
  (_, __, retry) =>
    step(`${say}; to try at once:`, retry)

const REFUSALS: Record<string, ToStep> = {
  Forbidden: () =>
    step('Give the account the right that the message names: install grants what the function declares.', INSTALL),
  InvalidObject: edit('Correct the field of the object that the message names.'),
  InvalidOutcome: () =>
    step(
      'Correct the function: what it returned is not valid. With another revision every object runs.',
      `${INSTALL} --revision TEXT`,
    ),
  Invalid: thenRetry('Correct what the function returns, or the field of the object that it comes from'),
  NotFound: thenRetry('Create what the message names: a namespace, or the definition of a kind'),
  TooLarge: thenRetry('Let the function return less: an object in Kubernetes has 1.5 MiB at most'),
  QuotaExceeded: thenRetry('Raise the quota of the namespace, or ask for less'),
  AdmissionDenied: thenRetry('Change what the policy refuses, or the policy'),
  AdmissionFailed: thenRetry('Mend the webhook that does not answer'),
  NameTaken: ({ message = '' }) => {
    // Of several objects, the first: the finding has the messages of all.
    const [command] = /kubectl annotate [^;…]+(?=;|$)/.exec(message) ?? []
    return command === undefined
      ? step('Free the name, or take the object over, as the message says.')
      : step('Free the name, or hand the object over:', command)
  },
  FieldConflict: thenRetry('Have one of the two reconcilers return other keys'),
  KindNotGranted: ({ message = '' }) =>
    step(
      'Name another kind, or have an administrator grant this one together with those that are granted. The object then runs:',
      /fairlead install --kinds \S+=PLURAL/.exec(message)?.[0]?.replace('install', 'install -f FILE'),
    ),
  KindNotListed: () =>
    step('Install the definition, or give bridges the right, that the message names. The object then runs.', INSTALL),
  TooMuchState: () =>
    step(
      'Let the function ask for fewer related objects (a selector, byName), or raise FAIRLEAD_MAX_STATE_MIB of the dispatchers.',
    ),
  AnswerTooLarge: thenRetry('Let the function return fewer or smaller objects'),
  RequestTooLarge: thenRetry('Let the function ask for fewer related objects (a selector, byName)'),
  NamespaceTerminating: thenRetry('Create the namespace again when it is gone, or have the function write elsewhere'),
  UnsettledError: () =>
    step(
      'Correct the function: it asks for a change after each of its changes, so its outcome must not depend on its own writes.',
      `${INSTALL} --revision TEXT`,
    ),
  RunTimeoutError: ({ message }, _, retry) =>
    step(
      `${mendingOf(message, undefined, 'Let the function answer within timeoutSeconds, or give it more time')}; to try at once:`,
      retry,
    ),
  ExternalReadFailed: thenRetry('Mend the external system, or how the function reaches it'),
  ConfigMissing: thenRetry('Create what the message names'),
  EffectFailed: thenRetry('Mend the external system, or how the function reaches it'),
}

const otherwise = ({ message }: Condition, one: ReconcilerSituation | undefined, retry: string | undefined): NextStep =>
  step(`${mendingOf(message, one, 'Mend what the message names')}; to try at once:`, retry)

/** Whether Ready shows the failure of the run: by its reason, or because the function quotes a refusal in its message. */
function isFailureOf(ready: Condition, { reason, message = '' }: Condition): boolean {
  const told = message.split('; ').filter((part) => part !== '')
  return ready.reason === reason || told.some((part) => ready.message?.includes(part))
}

/** Reports the condition Ready of the function. Skips one that shows the failure of the run, as Reconciled does. */
export const unready: Rule = ({ object, now, reconcilers }) => {
  const ready = conditionOf(object, 'Ready')
  if (ready === undefined || ready.status === 'True' || object?.metadata.deletionTimestamp !== undefined) return []
  const reconciled = conditionOf(object, RECONCILED)
  if (reconciled?.status === 'False' && isFailureOf(ready, reconciled)) return []
  const { message = '' } = ready
  const isShownByKey = ({ error = '' }: Row) => error !== '' && message.includes(error.replace(/…$/, ''))
  if (isFunctionFailing(ready) && reconcilers.some(({ rows = [] }) => rows.some(isShownByKey))) return []
  const isConsequence = reconcilers.some(
    ({ owned, named }) =>
      owned.some((one) => ['progressing', 'failed'].includes(healthOf(one).is)) ||
      named.some((one) => one.object === undefined),
  )
  const only = reconcilers.length === 1 ? reconcilers[0] : undefined
  const { lastTransitionTime } = ready
  const since = sinceText(lastTransitionTime, now)
  return [
    {
      reason: 'NotReady',
      level: isConsequence ? 'pending' : 'problem',
      message: `Ready is ${ready.status}${since}: ${wordsOf(ready)}`,
      next: isFunctionFailing(ready)
        ? step(
            `${mendingOf(message, only, 'Mend what the message names')}: with the next success the object is ready again.`,
          )
        : step('The function has set this condition: follow its message.'),
    },
  ]
}

/**
 * The function may be Ready without the missing object: then the finding is a note, not a problem. While the object is
 * being deleted, it is at most a cause of the wait.
 */
const levelBeside = (object: KubeObject | undefined): 'problem' | 'pending' | 'note' => {
  if (conditionOf(object, 'Ready')?.status === 'True') return 'note'
  return object?.metadata.deletionTimestamp === undefined ? 'problem' : 'pending'
}

/** Reports related objects that the object names and that do not exist. */
/** An act that waits is tried again after a minute at most, and runs that change nothing are not recorded. */
const WAITS_MS = 120_000

/** Reports acts of the last run that wait, such as an eviction for its budget. */
export const waits: Rule = ({ reconcilers, now }) =>
  reconcilers.flatMap(({ object, lastRun }) =>
    (lastRun?.refused ?? [])
      .filter(({ error }) => error.startsWith('waits: '))
      .filter(() => Date.parse(now) - Date.parse(lastRun?.endedAt ?? '') < WAITS_MS)
      .map(({ write, error }) => ({
        reason: 'ActWaits',
        level: 'pending' as const,
        reconciler: nameOf(object),
        message: `${write} ${error}`,
        next: step('Wait, or change what the message names: the act is tried again every minute, or sooner.'),
      })),
  )

export const namedMissing: Rule = ({ reconcilers, target, object: primary }) =>
  reconcilers.flatMap(({ object, named }) =>
    named
      .filter((one) => one.object === undefined)
      .map((one) => ({
        reason: 'RelatedMissing',
        level: levelBeside(primary),
        reconciler: nameOf(object),
        message: `${shown(target)} names ${shown(one)}, which does not exist`,
        next: step(
          `Create it, or name another one; the object then runs by itself.`,
          `kubectl edit ${kubectlName(target)}`,
        ),
      })),
  )

/**
 * Reports objects that the last recorded run returned and that do not exist. Skips those whose turn has not come, and a
 * rejected run, which has its own finding.
 */
export const ownedMissing: Rule = ({ reconcilers, target, object: primary }) =>
  reconcilers.flatMap(({ object, owned, lastRun, rows = [] }) => {
    const isSettled = lastRun?.result === 'success' || lastRun?.result === 'requeue_after'
    const isBusy = rows.some(({ state }) => state === 'queued' || state === 'running')
    if (lastRun === undefined || !isSettled || isBusy || primary?.metadata.deletionTimestamp !== undefined) return []
    const there = new Set(owned.map(shown))
    return lastRun.declared
      .filter((one) => one.stage?.action === undefined && !there.has(shown(one)))
      .map((one) => ({
        reason: 'OwnedMissing',
        level: 'problem' as const,
        reconciler: nameOf(object),
        message: `${shown(one)} does not exist, and run ${lastRun.run} has declared it`,
        next: step('Run it: missing objects are created.', `fairlead queue run ${keyName(nameOf(object), target)}`),
      }))
  })

/** Reports owned objects that have failed. */
export const ownedFailed: Rule = ({ reconcilers, object: primary }) =>
  reconcilers.flatMap(({ object, owned }) =>
    owned.flatMap((one): Finding[] => {
      const { is, why = '' } = healthOf(one)
      if (is !== 'failed') return []
      const { stuckPod } = one
      const seen = stuckPod
        ? { ...one, ref: { ...one.ref, group: '', resource: 'pods' }, name: stuckPod.metadata.name }
        : one
      return [
        {
          reason: 'OwnedFailed',
          level: levelBeside(primary),
          reconciler: nameOf(object),
          message: `${shown(one)} ${stuckPod ? 'cannot get ready' : 'has failed'}${why === '' ? '' : `: ${why}`}`,
          next: step('Correct what the message names; for more:', `kubectl describe ${kubectlName(seen)}`),
        },
      ]
    }),
  )

export const ownedProgressing: Rule = ({ reconcilers, object }) => {
  if (conditionOf(object, 'Ready')?.status === 'True') return []
  return reconcilers.flatMap(({ object: reconciler, owned }) =>
    owned.flatMap((one): Finding[] => {
      const { is, why = '' } = healthOf(one)
      if (is !== 'progressing') return []
      return [
        {
          reason: 'OwnedProgressing',
          level: 'pending',
          reconciler: nameOf(reconciler),
          message: `${shown(one)} is not ${one.kind === 'Job' ? 'complete' : 'ready'} yet${why === '' ? '' : `: ${why}`}`,
          next: step('Wait, or look at it.', `kubectl describe ${kubectlName(one)}`),
        },
      ]
    }),
  )
}

const HOUR_MS = 3_600_000

/**
 * Reports fields that the function declares and other managers keep changing: the object has their values most of the
 * time.
 */
export const contested: Rule = ({ object, now }) => {
  const condition = conditionOf(object, CONTESTED)
  if (condition?.status !== 'True') return []
  const { lastTransitionTime, message = '' } = condition
  const since = sinceText(lastTransitionTime, now)
  return [
    {
      reason: CONTESTED,
      level: 'problem',
      message: `fields are contested${since}: ${message}`,
      next: step(
        'Let one of the two set the field: stop the manager that is named, or leave the field out of what the function returns.',
      ),
    },
  ]
}

/** Reports fields that other managers set and the reconciler corrects: each correction is a write. */
export const takenBack: Rule = ({ events, now }: Situation) =>
  events
    .filter(({ reason, message }) => reason === 'FieldConflict' && message.includes('taken back from others'))
    .filter(({ last }) => Date.parse(now) - Date.parse(last) < HOUR_MS)
    .map(({ message, count, last }: ReportedEvent) => ({
      reason: 'FieldsTakenBack',
      level: 'note',
      message: `${count === 1 ? 'once,' : `${count} times, last`} ${lasting(last, now)} ago: ${message}`,
      next: step('Let the other manager leave the field, or let the function leave it out.'),
    }))
