export { createDispatcher, type Dispatcher, type DispatcherOptions } from './dispatcher.ts'
export type { Rehearsed } from './rehearsal.ts'
export { type RehearsalResult, rehearse } from './rehearse.ts'
export type { RunObserver, RunStep } from './steps.ts'
