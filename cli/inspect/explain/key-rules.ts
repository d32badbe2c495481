import { duration } from '#process/exit'
import { BLOCKED_AT, CONTESTED, NOT_CALLED, SERVER_AWAY, STORE_FULL } from '#reconcile'
import { isCutShort, type Row } from '../keys.ts'
import { deniedIn, INSTALL, isSelected, lasting, specOf } from './reconciler-rules.ts'
import {
  type BlockedRuns,
  conditionOf,
  type Finding,
  keyName,
  kubectlName,
  type NextStep,
  nameOf,
  patchOf,
  type ReconcilerSituation,
  type Rule,
  type Situation,
  shown,
  step,
} from './situation.ts'

/** A key that has been queued for less time than this is not reported. */
const LONG_QUEUED_MS = 60_000

/** Reports the state of the object's keys in the queue. */
export const queue: Rule = (situation) =>
  situation.reconcilers.flatMap((one) => {
    if (isSelected(one, situation) === false && !isHeldBy(one, situation)) return []
    const rows = (one.rows ?? []).filter((row) => failureIn(row, situation) === undefined)
    return rows.flatMap((row) => stateOf(row, one, situation))
  })

/**
 * Returns how often the last runs failed and when the next one begins, if the condition `Reconciled` has the error of
 * the row. One failure is then one finding, that of the condition.
 */
export function failureIn(row: Row, { object, now }: Pick<Situation, 'object' | 'now'>): string | undefined {
  const { state, reason, error } = row
  const condition = conditionOf(object, 'Reconciled')
  if (condition?.status !== 'False' || error === undefined || !isSameError(condition.message ?? '', error))
    return undefined
  if (state === 'parked' && reason !== 'Withdrawn') return failedForGood(row, now)
  return state === 'waiting' && reason === 'Error' ? failedAgain(row, now) : undefined
}

/** The queue cuts a long error at its end. */
const isSameError = (shown: string, queued: string): boolean =>
  shown === queued || (queued.endsWith('…') && shown.startsWith(queued.slice(0, -1)))

const failedForGood = ({ since }: Row, now: string): string =>
  `its last run failed for good ${duration(Date.parse(now) - Date.parse(since))} ago`

function failedAgain({ attempt, until }: Row, now: string): string {
  const left = until === undefined ? 'some time' : duration(Math.max(0, Date.parse(until) - Date.parse(now)))
  const failed =
    attempt === 0 ? 'its run was put off' : `${attempt === 1 ? 'its last run' : `${attempt} runs in a row`} failed`
  return `${failed}, the next try is in ${left}`
}

/**
 * True while an object that is being deleted still has keys: the Reconciler selected it earlier, and its finalizer is
 * still needed.
 */
const isHeldBy = ({ rows = [] }: ReconcilerSituation, { object }: Situation): boolean =>
  rows.length > 0 && object?.metadata.deletionTimestamp !== undefined

type ToFinding = (reason: string, level: Finding['level'], message: string, next?: NextStep) => Finding

function stateOf(row: Row, one: ReconcilerSituation, situation: Situation): Finding[] {
  const { now, target } = situation
  const reconciler = nameOf(one.object)
  const key = keyName(reconciler, target)
  const finding: ToFinding = (reason, level, message, next) => ({
    reason,
    level,
    reconciler,
    message,
    ...(next && { next }),
  })
  const error = row.error === undefined ? '' : `: ${row.error}`
  const forMs = Date.parse(now) - Date.parse(row.since)
  switch (row.state) {
    case 'parked':
      if (row.reason === 'Withdrawn')
        return [
          finding(
            'ParkedByHand',
            'problem',
            `its key was parked by hand ${duration(forMs)} ago: it runs again when it changes`,
            step('Run it again.', `fairlead queue retry ${key}`),
          ),
        ]
      return [finding('Parked', 'problem', `${failedForGood(row, now)}${error}`, parkedStep(one, situation))]
    case 'waiting':
      return waiting(row, one, situation, finding)
    case 'running': {
      const before = cutShortText(row, one, now)
      if (before !== undefined)
        return [
          finding(
            'RunCutShort',
            'problem',
            `${before}. ${row.by ?? 'A process'} runs it again since ${duration(forMs)}`,
            cutShortStep(one, key),
          ),
        ]
      const timeoutMs = (specOf(one)?.timeoutSeconds ?? 60) * 1000
      const by = `${row.by ?? 'a process'} runs it since ${duration(forMs)}`
      if (forMs > 2 * timeoutMs)
        return [
          finding(
            'RunningLong',
            'problem',
            `${by}, and one call may last ${timeoutMs / 1000} s`,
            step(
              'Let the function end by its signal; a call that ignores it ends with its process after five time-outs.',
            ),
          ),
        ]
      return [finding('Running', 'pending', by, step('Wait until the run has ended.'))]
    }
    case 'queued': {
      const before = cutShortText(row, one, now)
      if (before !== undefined)
        return [finding('RunCutShort', 'problem', `${before}. It is queued again`, cutShortStep(one, key))]
      const place = `${row.position ?? 1} in the ${row.lane} lane`
      if (forMs < LONG_QUEUED_MS || one.isServed !== true || specOf(one)?.paused === true)
        return [
          finding(
            'Queued',
            'pending',
            `it is queued since ${duration(forMs)}, place ${place}`,
            step('Wait until it runs.', `fairlead queue show ${key}`),
          ),
        ]
      const runRate = specOf(one)?.runRate
      if (runRate !== undefined)
        return [
          finding(
            'QueuedByRate',
            'pending',
            `it waits for its turn since ${duration(forMs)}, place ${place}; all processes together begin ${runRate.perSecond} runs a second`,
            step('Wait, or raise spec.runRate of the Reconciler.', `kubectl edit reconciler ${nameOf(one.object)}`),
          ),
        ]
      const concurrency = specOf(one)?.concurrency ?? 256
      return [
        finding(
          'QueuedLong',
          'problem',
          `it waits for its turn since ${duration(forMs)}, place ${place}; a process holds ${concurrency} keys at once`,
          step(
            'Start more dispatchers, or let each hold more keys.',
            patchOf(reconciler, { concurrency: Math.min(10_000, concurrency * 2) }),
          ),
        ),
      ]
    }
  }
}

function waiting(
  row: Row,
  one: ReconcilerSituation,
  { now, target, object }: Situation,
  finding: ToFinding,
): Finding[] {
  const key = keyName(nameOf(one.object), target)
  const left = row.until === undefined ? 'some time' : duration(Math.max(0, Date.parse(row.until) - Date.parse(now)))
  if (row.reason === 'Requeue') {
    const message = `it runs again in ${left}: ${timerText(object, one)}`
    if (one.isServed !== false) return [finding('TimerPending', 'note', message, runNow(key))]
    return [finding('TimerPending', 'note', `its timer waits for a process: ${message}`)]
  }
  if (row.reason === 'CutShort')
    return [
      finding(
        'RunCutShort',
        'problem',
        `${cutShortText(row, one, now)}. It runs again in ${left}, in a process of its own`,
        cutShortStep(one, key),
      ),
    ]
  const error = row.error === undefined ? '' : `: ${row.error}`
  if (row.error?.startsWith(STORE_FULL))
    return [
      finding(
        'StoreFull',
        'problem',
        `its last run could not write, the next try is in ${left}${error}`,
        step('Make room in etcd, or raise its quota, and end its alarm NOSPACE.', 'etcdctl alarm list'),
      ),
    ]
  if (row.error?.startsWith(SERVER_AWAY))
    return [
      finding(
        'ApiServerAway',
        'problem',
        `its last run could not go on, the next try is in ${left}${error}`,
        step('See whether the API server is ready, and whether dispatchers reach it.', 'kubectl get --raw /readyz'),
      ),
    ]
  const { blocked } = one
  if (blocked !== undefined) {
    const more = row.error === blocked.message ? '' : error
    const message = `${blockedText(blocked)}; the next try is in ${left}${more}`
    return [finding('Retrying', 'problem', message, cutShortStep(one, key))]
  }
  if (row.error?.startsWith(NOT_CALLED))
    return [finding('Retrying', 'problem', `${failedAgain(row, now)}${error}`, othersStep(key))]
  return [
    finding(
      'Retrying',
      'problem',
      `${failedAgain(row, now)}${error}`,
      deniedIn(row.error).length > 0
        ? INSTALL
        : step(
            `${mendingOf(row.error, one, 'Mend the cause that the error names')}; to try at once:`,
            `fairlead queue retry ${key}`,
          ),
    ),
  ]
}

/** Describes the runs before that have blocked or lost their process. Undefined: the last run of the key has come back. */
function cutShortText(row: Row, { blocked, endedBy }: ReconcilerSituation, now: string): string | undefined {
  if (blocked !== undefined) return blockedText(blocked)
  if (!isCutShort(row)) return undefined
  const lost = row.error ?? 'its last run did not end in its lease: the process was lost, or NATS was late'
  if (endedBy === undefined) return lost
  return `${lost}. The run of ${shown(endedBy)} ended a process ${lasting(endedBy.endedAt, now)} ago: ${endedBy.message}`
}

const blockedText = ({ runs, message }: BlockedRuns): string =>
  `${runs === 1 ? 'its last run has blocked or ended its' : `${runs} runs in a row have blocked or ended their`} process: ${message}`

/** For an object whose own run has not blocked or ended its process, as far as it is recorded. */
const othersStep = (key: string): NextStep =>
  step(
    'Mend the function for the object that the error or the log (a function has blocked, or has ended, the process) names: this one then runs by itself. To try at once:',
    `fairlead queue retry ${key}`,
  )

const cutShortStep = (one: ReconcilerSituation, key: string): NextStep =>
  one.blocked === undefined && one.endedBy !== undefined
    ? step(
        `See what ${shown(one.endedBy)} needs. When its runs end no process any more, this one runs by itself.`,
        `fairlead explain ${kubectlName(one.endedBy)}`,
      )
    : ownStep(one, key)

const ownStep = (one: ReconcilerSituation, key: string): NextStep =>
  step(
    mendingOf(
      one.blocked?.message,
      one,
      'See in the log (run cut short again) what the function does with this object: it blocks, ignores its signal, or takes too much memory. Mend it, then run it.',
    ),
    `fairlead queue retry ${key}`,
  )

/** Tells who has set the timer. A run that only sets one is not recorded, so the last record may be an older one. */
function timerText(object: Situation['object'], { lastRun }: ReconcilerSituation): string {
  const isAsked = lastRun?.asksAgain === true
  if (conditionOf(object, CONTESTED)?.status !== 'True')
    return isAsked ? 'the function asked for that' : 'a timer is set'
  return isAsked
    ? 'the function asked for that, or contested fields are corrected then'
    : 'contested fields are compared again then'
}

const BLOCKED_PLACE = new RegExp(`(?:^|: )${BLOCKED_AT}(.+?:\\d+:\\d+): the function `)

/**
 * Names the line of the function that blocks, or that has thrown the error of the last run; otherwise returns the text. Errors that a
 * function throws on purpose do not tell their line. Without a record of the run, the line is that of the text.
 */
export function mendingOf(error = '', one: ReconcilerSituation | undefined, otherwise: string): string {
  const [, blocked] = BLOCKED_PLACE.exec(error) ?? []
  if (blocked !== undefined) return `Correct the function at ${blocked}`
  const { result, place } = one?.lastRun ?? {}
  const isRecorded = result === 'error' || result === 'terminal'
  const [told] = isRecorded ? [place] : (/(?<=^|: )[\w$]+ at \S+:\d+:\d+(?=: )/.exec(error) ?? [])
  if (told === undefined || !error.includes(told)) return otherwise
  return `Correct the function ${told.slice(told.indexOf('at '))}`
}

const runNow = (key: string): NextStep => step('Nothing has to be done. To run it now:', `fairlead queue run ${key}`)

/** Suggests to fix the object or the function. */
function parkedStep(one: ReconcilerSituation, { target, object }: Situation): NextStep {
  const { reason } = conditionOf(object, 'Reconciled') ?? {}
  if (reason === 'InvalidOutcome')
    return step(
      'Correct the function: what it returned is not valid. Then install it with another revision, and every object runs.',
      `fairlead install -f FILE --revision TEXT`,
    )
  return step(
    `Correct the object by the message: it then runs by itself. If the function is wrong, correct that, then fairlead queue retry ${keyName(nameOf(one.object), target)}.`,
    `kubectl edit ${kubectlName(target)}`,
  )
}

/** Reports a change of the object without a run after it, while no key is due. */
export const unanswered: Rule = (situation) => {
  const { object, target, now } = situation
  const { generation = 0, deletionTimestamp } = object?.metadata ?? {}
  const { observedGeneration } = (object?.status ?? {}) as { observedGeneration?: number }
  if (deletionTimestamp !== undefined || observedGeneration === undefined || observedGeneration >= generation) return []
  return situation.reconcilers.flatMap((one): Finding[] => {
    const isIdle = one.rows?.length === 0
    if (!isIdle || isSelected(one, situation) !== true) return []
    const reconciler = nameOf(one.object)
    const changed = conditionOf(object, 'Reconciled')?.lastTransitionTime
    return [
      {
        reason: 'ChangeUnanswered',
        level: 'problem',
        reconciler,
        message: `its status is of generation ${observedGeneration}, the object is at ${generation}, and nothing is queued${changed === undefined ? '' : ` (Reconciled changed ${lasting(changed, now)} ago)`}`,
        next: step('Run it.', `fairlead queue run ${keyName(reconciler, target)}`),
      },
    ]
  })
}
