export { pause, unlessAborted } from './abort.ts'
export { forEachAtMost, mapAtMost } from './at-most.ts'
export { BoundedMap } from './bounded-map.ts'
export { doubling, repeat, retry } from './retry.ts'
