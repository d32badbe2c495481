export { BoundedMap } from './bounded-map.ts'
export { CompactMap } from './compact-map.ts'
export { Budget, forEachAtMost, type Grant, mapAtMost, TokenBucket } from './limits.ts'
export { allEnded, doubling, endedWithin, pause, repeat, retry, unlessAborted } from './retry.ts'
