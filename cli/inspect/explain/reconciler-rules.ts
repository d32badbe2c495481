import { namespacedName } from '#contracts'
import { duration } from '#process/exit'
import { RECONCILED } from '#reconcile'
import {
  isRefused,
  nameOfShard,
  parseSelector,
  RELEASED,
  type ReconcilerSpec,
  readReconciler,
  selectionOf,
  shardOf,
} from '#spec'
import {
  conditionOf,
  type Finding,
  kubectlName,
  type NextStep,
  nameOf,
  patchOf,
  type ReconcilerSituation,
  type Rule,
  type Situation,
  step,
  type Target,
} from './situation.ts'

export const INSTALL = step(
  'Install the function: what it declares is applied, with its rights and definitions.',
  'fairlead install -f FILE',
)

/** Returns undefined for a rejected Reconciler. */
export function specOf({ object }: ReconcilerSituation): ReconcilerSpec | undefined {
  const read = readReconciler(object)
  return isRefused(read) ? undefined : read
}

/** Returns undefined if the Reconciler is rejected or the object does not exist. */
export function isSelected(one: ReconcilerSituation, { object }: Situation): boolean | undefined {
  const spec = specOf(one)
  return spec && object && selectionOf(spec.for)(object)
}

export const unread: Rule = ({ reconcilers }) =>
  reconcilers.flatMap(({ object }): Finding[] => {
    const read = readReconciler(object)
    if (!isRefused(read)) return []
    const say = 'Correct the Reconciler, or install its function again.'
    return [problem(object, 'InvalidSpec', read.message, step(say, `kubectl edit reconciler ${nameOf(object)}`))]
  })

const SYNC: Record<string, NextStep> = {
  ResourceNotFound: INSTALL,
  Forbidden: INSTALL,
  Rejected: step('Correct what the Reconciler asks for, or let the API server serve it; the bridge tries again.'),
  KindMismatch: step(
    'Correct the kind or the resource in `for` of the function, and install it again.',
    'fairlead install -f FILE',
  ),
  KindUnknown: step('Install the definition of the kind, or correct the other Reconciler; the bridge tries again.'),
  NotPrepared: step('Look into the log of the bridge: it tries again.'),
  HeldByShard: step('Wait until the former shard has ended its runs. If its bridges do not run, start one.'),
}

/** The next step for a Reconciler that no bridge has taken up. */
function startBridge(object: ReconcilerSituation['object']): NextStep {
  const shard = shardOf(object)
  return shard === ''
    ? step('Start a bridge, or look why it does not run.', 'fairlead bridge')
    : step(`Start a bridge of shard ${shard}, or look why it does not run.`, `fairlead bridge --shard ${shard}`)
}

export const unsynced: Rule = ({ reconcilers }) =>
  reconcilers.flatMap(({ object }): Finding[] => {
    const synced = conditionOf(object, 'Synced')
    if (synced === undefined)
      return [
        problem(object, 'NotWatched', 'no bridge has taken it up: nothing is watched for it', startBridge(object)),
      ]
    if (synced.status === 'True' || synced.reason === 'InvalidSpec') return []
    const { reason = 'NotSynced', message = '' } = synced
    if (reason === 'Listing')
      return [{ reason, level: 'pending', reconciler: nameOf(object), message, next: step('Wait: the list is read.') }]
    return [problem(object, reason, message, reason === RELEASED ? startBridge(object) : (SYNC[reason] ?? INSTALL))]
  })

/** A bridge that watches hears from the API server, and stores its position, every 90 s at least. */
const QUIET_MS = 300_000

/** Undefined: a bridge watches, as far as it is known. Otherwise for how long none has. */
export const quietFor = ({ quietMs = 0 }: ReconcilerSituation): string | undefined =>
  quietMs < QUIET_MS ? undefined : duration(quietMs)

/** Reports a Reconciler that a bridge has taken up, and that none watches for now. */
export const unwatched: Rule = (situation) =>
  situation.reconcilers.flatMap((one): Finding[] => {
    const { object } = one
    const quiet = quietFor(one)
    if (quiet === undefined || conditionOf(object, 'Synced')?.status !== 'True') return []
    const message = `no bridge watches for it since ${quiet}: none runs, or it does not reach the API server`
    return [problem(object, 'Unwatched', message, startBridge(object))]
  })

/** Reports a Reconciler of another shard: its queue is in other streams than those that were read. */
export const elsewhere: Rule = ({ reconcilers, target }) =>
  reconcilers.flatMap(({ object, isElsewhere }): Finding[] => {
    if (!isElsewhere) return []
    const shard = shardOf(object)
    const where = target.namespace === undefined ? '' : ` -n ${target.namespace}`
    const again = `fairlead explain ${target.ref.resource}/${target.name}${where}`
    const next =
      shard === ''
        ? step('Ask again without FAIRLEAD_SHARD and --shard.', again)
        : step('Ask that shard.', `${again} --shard ${shard}`)
    const message = `${nameOfShard(shard)} serves it, whose queue was not asked`
    return [{ ...problem(object, 'OtherShard', message, next), level: 'unknown' }]
  })

const READY_STEPS: Record<string, (message: string) => NextStep> = {
  IdentityTaken: (message) => step(`Let one of the two go: ${message}`),
  NotInEvents: () => step('Start a bridge, or look why it does not run.', 'fairlead bridge'),
  FunctionUnreachable: () => step('Start the server of the function, or correct its address; then runs go on.'),
}

/** Reports a Reconciler that is paused or rejected as a whole: none of its objects run. */
export const held: Rule = ({ reconcilers }) =>
  reconcilers.flatMap((one): Finding[] => {
    const { object } = one
    const name = nameOf(object)
    if (specOf(one)?.paused)
      return [
        problem(
          object,
          'ReconcilerPaused',
          'spec.paused: nothing runs, changes and timers wait in the queue',
          step('Let it run again.', patchOf(name, { paused: false })),
        ),
      ]
    const ready = conditionOf(object, 'Ready')
    const { reason = '', message = '' } = ready ?? {}
    const next = READY_STEPS[reason]
    return ready?.status === 'False' && next ? [problem(object, reason, message, next(message))] : []
  })

export const unserved: Rule = (situation) =>
  situation.reconcilers.flatMap((one): Finding[] => {
    const { object, isServed, rows = [] } = one
    const spec = specOf(one)
    if (spec === undefined || spec.paused || isSelected(one, situation) === false) return []
    const ready = conditionOf(object, 'Ready')
    const isKnownAway = isServed === false || (isServed === undefined && ready === undefined)
    if (!isKnownAway || (ready?.status === 'False' && READY_STEPS[ready.reason ?? ''])) return []
    const waits = rows.some(({ state }) => state === 'queued') ? ', and the object waits in the queue' : ''
    const how =
      spec.invoke.http === undefined ? 'no dispatcher that has the function is running' : 'no dispatcher is running'
    const next =
      quietFor(one) === undefined
        ? step('Start a dispatcher, or look why it does not run.', 'fairlead dispatch -f FILE')
        : step('Start Fairlead, or look why it does not run: no bridge watches either.', 'fairlead up -f FILE')
    return [problem(object, 'Unserved', `${how}${waits}`, next)]
  })

/** Reports a Reconciler that does not select the object. It is a problem if no Reconciler of the kind does. */
export const unselected: Rule = (situation) => {
  const { object, reconcilers, target } = situation
  if (object === undefined) return []
  const isByAnother = reconcilers.some((one) => isSelected(one, situation) === true)
  return reconcilers.flatMap((one): Finding[] => {
    const spec = specOf(one)
    if (spec === undefined || isSelected(one, situation) !== false) return []
    const { message, next } = whyUnselected(one, spec, situation, target)
    return [{ ...problem(one.object, 'Unselected', message, next), level: isByAnother ? 'note' : 'problem' }]
  })
}

function whyUnselected(
  { object: reconciler }: ReconcilerSituation,
  { for: { namespaces, selector = '', fieldSelector } }: ReconcilerSpec,
  { object }: Situation,
  target: Target,
): { message: string; next: NextStep } {
  const name = nameOf(reconciler)
  const { namespace } = target
  if (namespaces !== undefined && namespace !== undefined && !namespaces.includes(namespace))
    return {
      message: `the namespace ${namespace} is not among its namespaces: ${namespaces.slice(0, 10).join(', ')}`,
      next: step(
        'Add the namespace to `namespaces` of the function and install it, so that its rights follow.',
        'fairlead install -f FILE',
      ),
    }
  const labels = object?.metadata.labels ?? {}
  const failing = termsOf(selector).find((term) => !parseSelector(term)(labels))
  if (failing !== undefined)
    return {
      message: `the object does not match its selector: ${selector}`,
      next: step('Give the object labels that match.', labelCommand(failing, target)),
    }
  return {
    message: `the object does not match its field selector: ${fieldSelector}`,
    next: step(`Change the object, or the field selector of ${name}.`, `kubectl edit ${kubectlName(target)}`),
  }
}

/** Splits a selector at the commas that are not inside of parentheses. */
const termsOf = (selector: string): string[] =>
  selector
    .split(/,(?![^(]*\))/)
    .map((term) => term.trim())
    .filter((term) => term !== '')

/** Returns undefined if several labels could satisfy the term. */
function labelCommand(term: string, target: Target): string | undefined {
  const label = (change: string) => `kubectl label --overwrite ${kubectlName(target)} ${change}`
  const [, absent] = /^!\s*(\S+)$/.exec(term) ?? []
  if (absent !== undefined) return label(`${absent}-`)
  const [, key, value] =
    /^([^\s=!()]+)\s*==?\s*([^\s=]*)$/.exec(term) ?? /^(\S+)\s+in\s*\(\s*([^\s,)]*)/.exec(term) ?? []
  if (key !== undefined) return label(`${key}=${value}`)
  const [, unwanted] = /^(\S+)\s+notin\b/.exec(term) ?? /^([^\s=!()]+)\s*!=/.exec(term) ?? []
  if (unwanted !== undefined) return label(`${unwanted}-`)
  return /^[^\s=!()]+$/.test(term) ? label(`${term}=`) : undefined
}

export const dryRun: Rule = (situation) =>
  situation.reconcilers.flatMap((one): Finding[] => {
    if (specOf(one)?.dryRun !== true || isSelected(one, situation) === false) return []
    const { target } = situation
    const name = nameOf(one.object)
    const key = namespacedName(target)
    return [
      problem(
        one.object,
        'DryRun',
        'spec.dryRun: runs write nothing, and log what they would',
        step(
          'Let it write, and run the object once more.',
          `${patchOf(name, { dryRun: false })} && fairlead queue run ${name} ${key}`,
        ),
      ),
    ]
  })

export const overlapping: Rule = ({ reconcilers }) =>
  reconcilers.flatMap(({ object }): Finding[] => {
    const condition = conditionOf(object, 'Overlapping')
    if (condition?.status !== 'True') return []
    const say = 'Make sure that the two create objects of different names, or delete one of the Reconcilers.'
    return [{ ...problem(object, 'Overlapping', condition.message ?? '', step(say)), level: 'note' }]
  })

/**
 * Reports rights that the account lacks. They are a note, unless the last run needed one of them. If the condition
 * `Reconciled` has the error of that run, its finding names the right.
 */
export const missingRights: Rule = ({ reconcilers, object: primary }) =>
  reconcilers.flatMap(({ object, missingRights: missing = [], rows = [], lastRun }): Finding[] => {
    const condition = conditionOf(primary, RECONCILED)
    const told = new Set(condition?.status === 'False' ? deniedIn(condition.message) : [])
    const refusals = (lastRun?.refused ?? []).map(({ error }) => error)
    const needed = new Set([lastRun?.message, ...refusals, ...rows.map(({ error }) => error)].flatMap(deniedIn))
    const untold = missing.filter((right) => !told.has(right))
    const { problem: wanted = [], note: spare = [] } = Object.groupBy(untold, (right) =>
      needed.has(right) ? 'problem' : 'note',
    )
    const { serviceAccount: account } = object.spec as { serviceAccount?: { namespace: string; name: string } }
    const who = account === undefined ? 'its account' : `the account ${account.namespace}/${account.name}`
    const lacking = (rights: string[], level: Finding['level']): Finding[] =>
      rights.length === 0
        ? []
        : [{ ...problem(object, 'RightsMissing', `${who} may not ${rights.join(', ')}`, INSTALL), level }]
    return [...lacking(wanted, 'problem'), ...lacking(spare, 'note')]
  })

/** Returns the rights whose absence the API server names in a text: `create deployments.apps`. */
export function deniedIn(text: string | undefined): string[] {
  const denials = (text ?? '').matchAll(/cannot (\w+) resource "([^"/]+)(\/[^"]+)?" in API group "([^"]*)"/g)
  return [...denials].map(([, verb, resource, subresource = '', group = '']) => {
    const kind = [resource, group].filter((part) => part !== '').join('.')
    return `${verb} ${kind}${subresource}`
  })
}

/** `for 3m10s` */
export const lasting = (since: string, now: string): string => duration(Date.parse(now) - Date.parse(since))

const problem = (
  { metadata: { name: reconciler } }: { metadata: { name: string } },
  reason: string,
  message: string,
  next: NextStep,
): Finding => ({ reason, level: 'problem', reconciler, message, next })
