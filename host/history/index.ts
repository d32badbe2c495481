export { causesOf } from './causes.ts'
export type { RunHistory } from './history.ts'
export { openHistory } from './open.ts'
