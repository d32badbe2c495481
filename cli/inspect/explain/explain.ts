import { queue, unanswered } from './key-rules.ts'
import {
  absent,
  away,
  behind,
  unread as deadLetters,
  deleting,
  kindGone,
  namespaceTerminating,
  orphaned,
  paused,
  suspended,
  unreconciled,
} from './object-rules.ts'
import {
  contested,
  namedMissing,
  ownedFailed,
  ownedMissing,
  ownedProgressing,
  refused,
  takenBack,
  unready,
  waits,
} from './outcome-rules.ts'
import {
  dryRun,
  elsewhere,
  held,
  missingRights,
  overlapping,
  unread,
  unselected,
  unserved,
  unsynced,
  unwatched,
} from './reconciler-rules.ts'
import { conditionsOf, type Finding, type Level, type NextStep, type Rule, type Situation } from './situation.ts'
import { webhook } from './webhook.ts'

export interface Explanation {
  /** There is no problem, no change is in progress, and both servers answered. */
  healthy: boolean
  /** The findings, ordered by urgency. */
  findings: Finding[]
  /** The next step of the user; undefined if none is necessary. */
  next: NextStep | undefined
}

/**
 * A cause comes before its effects, so the first problem has the step that helps. After what keeps the object from
 * running at all comes what refused a write of its last run.
 */
const RULES: readonly Rule[] = [
  kindGone,
  absent,
  orphaned,
  unreconciled,
  unread,
  held,
  unsynced,
  unselected,
  paused,
  namespaceTerminating,
  unserved,
  unwatched,
  dryRun,
  refused,
  deadLetters,
  behind,
  missingRights,
  contested,
  queue,
  unanswered,
  deleting,
  namedMissing,
  ownedMissing,
  ownedFailed,
  ownedProgressing,
  waits,
  unready,
  webhook,
  takenBack,
  overlapping,
  suspended,
  elsewhere,
  away,
]

/**
 * Returns a text without what a finding tells, for a page that lists the findings: an empty text if a finding has all
 * of it, and … for a message of a condition that it quotes.
 */
export function untoldBy({ object, reconcilers }: Situation, { findings }: Explanation): (text: string) => string {
  const isTold = (text: string) => findings.some(({ message }) => message.includes(text.replace(/…$/, '')))
  const messages = conditionsOf(object).map(({ message = '' }) => message)
  const errors = reconcilers.flatMap(({ rows = [] }) => rows).map(({ error = '' }) => error)
  const quotes = [...messages, ...errors].filter((text) => text !== '' && isTold(text))
  return (text) => (isTold(text) ? '' : quotes.reduce((rest, quote) => rest.replaceAll(quote, '…'), text))
}

const LEVELS: readonly Level[] = ['problem', 'unknown', 'pending', 'note']

/** Returns the causes that block the object, as text, and the next step. Pure: the situation is its only input. */
export function explain(situation: Situation): Explanation {
  const all = RULES.flatMap((rule) => rule(situation))
  const findings = LEVELS.flatMap((level) => all.filter((finding) => finding.level === level))
  const healthy = findings.every(({ level }) => level === 'note')
  return { healthy, findings, next: healthy ? undefined : findings.find(({ next }) => next)?.next }
}
