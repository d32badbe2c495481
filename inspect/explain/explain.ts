import type { Finding, Level, NextStep, Rule } from './finding.ts'
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
import { dryRun, held, missingRights, overlapping, unread, unselected, unserved, unsynced } from './reconciler-rules.ts'
import type { Situation } from './situation.ts'

export interface Explanation {
  /** Nothing is wrong, nothing is under way, and both servers could be asked. */
  healthy: boolean
  /** In the order in which they should be dealt with. */
  findings: Finding[]
  /** What to do first; undefined: nothing. */
  next: NextStep | undefined
}

/** A cause stands before what follows from it: the first problem has the step that helps. */
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
  away,
]

const LEVELS: readonly Level[] = ['problem', 'unknown', 'pending', 'note']

/** What holds the object up, in words, and the one step to take. Pure: the situation is all that it knows. */
export function explain(situation: Situation): Explanation {
  const all = RULES.flatMap((rule) => rule(situation))
  const findings = LEVELS.flatMap((level) => all.filter((finding) => finding.level === level))
  const healthy = findings.every(({ level }) => level === 'note')
  return { healthy, findings, next: healthy ? undefined : findings.find(({ next }) => next)?.next }
}
