export { reconcilerCrd } from './reconciler.ts'
