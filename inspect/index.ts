export { type DeadFilter, selectLetters, textOf } from './dead/letters.ts'
export { type ReplayTools, replay } from './dead/replay.ts'
export { type ExistingStreams, openExistingStreams, withExistingStreams } from './existing-streams.ts'
export { type Explanation, explain } from './explain/explain.ts'
export { type Finding, nameOf, shown } from './explain/finding.ts'
export { gather, reconcilersOf, targetOf } from './explain/gather.ts'
export { type Health, healthOf, wordsOf } from './explain/health.ts'
export { jsonOf, type Known, pageOf, reachOf } from './explain/page.ts'
export {
  type Condition,
  conditionOf,
  conditionsOf,
  type ReconcilerSituation,
  type Relative,
  type Situation,
  type Target,
} from './explain/situation.ts'
export { type ActResult, actOn, isDone, MEANING } from './keys/act.ts'
export { adviceOn, orphansIn, type QueueView, withOrphan } from './keys/orphans.ts'
export { called, detail, placeInNamespace, type Row, toRow } from './keys/rows.ts'
export { type QueuedNow, queueNow } from './keys/run.ts'
export {
  demandReconciler,
  elsewhere,
  type Filter,
  type KeyName,
  keyFor,
  keyNameOf,
  selectRows,
} from './keys/select.ts'
export type { Act, State } from './keys/states.ts'
export { causeChanges } from './runs/causes.ts'
export { explained, filterOf, latestRuns, type RunSelection, runsOf, wants as wantsRun } from './runs/select.ts'
export { becauseOf, causeText, lineOffset, linesLeftOut, tookMs, waitedMs, writesIn } from './runs/texts.ts'
export { filtersOf, type Selection, wants, watchedAs } from './selection.ts'
export { reconcilersIn } from './stored.ts'
