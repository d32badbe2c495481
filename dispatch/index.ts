export { createDispatcher, type Dispatcher, type DispatcherOptions } from './dispatcher.ts'
export { isEcho } from './echo.ts'
export { RECONCILED } from './status.ts'
export type { RunObserver, RunStep } from './steps.ts'
