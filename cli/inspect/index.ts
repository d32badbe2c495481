export { type DeadFilter, type ReplayTools, replay, selectLetters, textOf } from './dead.ts'
export { type ExistingStreams, openExistingStreams, withExistingStreams } from './existing-streams.ts'
export { type Explanation, explain, untoldBy } from './explain/explain.ts'
export { storedObject } from './explain/facts.ts'
export { type Asked, gather, reconcilersOf, targetOf } from './explain/gather.ts'
export { type Health, healthOf, wordsOf } from './explain/health.ts'
export { colored, jsonOf, type Known, pageOf, reachOf, writersOf } from './explain/page.ts'
export {
  type Condition,
  conditionOf,
  conditionsOf,
  type Finding,
  type LastRun,
  nameOf,
  type ReconcilerSituation,
  type Relative,
  type Situation,
  shown,
  type Target,
} from './explain/situation.ts'
export {
  type ActResult,
  actOn,
  adviceOn,
  called,
  demandReconciler,
  detail,
  elsewhere,
  type Filter,
  isDone,
  type KeyName,
  keyFor,
  keyNameOf,
  MEANING,
  objectOfCause,
  orphansIn,
  placeInNamespace,
  type QueuedNow,
  type QueueView,
  queueNow,
  type Row,
  selectRows,
  toRow,
  withOrphan,
} from './keys.ts'
export {
  becauseOf,
  changeText,
  failureText,
  filterOf,
  type InputChange,
  inputChanges,
  latestRuns,
  lineOffset,
  linesLeftOut,
  type RunSelection,
  runsOf,
  tookMs,
  waitedMs,
  wants as wantsRun,
  writesIn,
  writesText,
} from './runs.ts'
export { filtersOf, reconcilersIn, type Selection, wants, watchedAs } from './selection.ts'
export type { Act, State } from './states.ts'
export {
  NO_NAMESPACE,
  periodFor,
  sumUsage,
  type UsageDimension,
  type UsageSum,
  usageCells,
  usageSince,
} from './usage.ts'
