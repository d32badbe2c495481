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
} from './reconciler-rules.ts'
import type { Finding, Level, NextStep, Rule, Situation } from './situation.ts'

export interface Explanation {
  /** There is no problem, no change is in progress, and both servers answered. */
  healthy: boolean
  /** The findings, ordered by urgency. */
  findings: Finding[]
  /** The next step of the user; undefined if none is necessary. */
  next: NextStep | undefined
}

/** A cause comes before its effects, so the first problem has the step that helps. */
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
  deadLetters,
  unserved,
  dryRun,
  behind,
  missingRights,
  refused,
  contested,
  queue,
  unanswered,
  namedMissing,
  ownedMissing,
  ownedFailed,
  deleting,
  ownedProgressing,
  unready,
  takenBack,
  overlapping,
  suspended,
  elsewhere,
  away,
]

/** Returns whether a finding has the text: a page that lists the findings then leaves the text out elsewhere. */
export const toldBy =
  (findings: readonly Finding[]) =>
  (text: string): boolean => {
    const start = text.replace(/…$/, '')
    return start !== '' && findings.some(({ message }) => message.includes(start))
  }

const LEVELS: readonly Level[] = ['problem', 'unknown', 'pending', 'note']

/** Returns the causes that block the object, as text, and the next step. Pure: the situation is its only input. */
export function explain(situation: Situation): Explanation {
  const all = RULES.flatMap((rule) => rule(situation))
  const findings = LEVELS.flatMap((level) => all.filter((finding) => finding.level === level))
  const healthy = findings.every(({ level }) => level === 'note')
  return { healthy, findings, next: healthy ? undefined : findings.find(({ next }) => next)?.next }
}
