/** The door of commands that read NATS alone: it loads no client of Kubernetes. */
export { withExistingStreams } from '../existing-streams.ts'
export { type ActResult, actOn, isDone, MEANING } from './act.ts'
export { adviceOn, orphansIn, type QueueView, withOrphan } from './orphans.ts'
export { called, detail, placeInNamespace, type Row, toRow } from './rows.ts'
export { type QueuedNow, queueNow } from './run.ts'
export { demandReconciler, elsewhere, type Filter, type KeyName, keyFor, keyNameOf, selectRows } from './select.ts'
export type { Act, State } from './states.ts'
