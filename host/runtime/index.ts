export { releaseMemoryWhenIdle } from './heap.ts'
export { ownRevision } from './revision.ts'
export { createRuntime, type Runtime, type RuntimeOptions } from './runtime.ts'
