export { Executor, type ExecutorDeps } from './executor.ts'
