export { createDispatcher, type Dispatcher, type DispatcherOptions } from './dispatcher.ts'
export { RECONCILED } from './status.ts'
export type { RunObserver, RunStep } from './steps.ts'
