/**
 * A hierarchical timing wheel of sleeping timers. A timer that is due in the far future lies in a wide bucket, and
 * moves to a narrower one when its bucket opens. Each level has SLOTS buckets, so the state part of a subject has at
 * most LEVELS × SLOTS additional values: a compare-and-set reads all of them.
 */
export interface Bucket {
  level: number
  /** The start of the bucket since the epoch, in widths of its level. */
  index: number
}

const LEVELS = 7
const SLOTS = 8
const NARROWEST_MS = 8000
/** How long before its first timer is due a bucket opens. */
const LEAD_MS = 1000

const widthOf = (level: number): number => NARROWEST_MS * SLOTS ** level

/** Returns when a process must open the bucket, in epoch milliseconds. */
export const opensAt = ({ level, index }: Bucket): number => index * widthOf(level) - LEAD_MS

/** Returns the bucket of a timer. Undefined: the timer is due at most 9 s after `from`, too soon to sleep. */
export function bucketFor(at: number, from: number): Bucket | undefined {
  let level = 0
  while (level < LEVELS - 1 && at - from >= widthOf(level + 1) + LEAD_MS) level++
  const bucket = { level, index: Math.floor(at / widthOf(level)) }
  return opensAt(bucket) <= from ? undefined : bucket
}

/** Returns the slot in the subject of a record. Buckets that are a whole turn of the wheel apart share a slot. */
export const slotOf = ({ level, index }: Bucket): string => `${level}${index % SLOTS}`

/** Returns the slots of one level. `level` may exceed the number of levels: it wraps around. */
export const slotsOf = (level: number): string[] =>
  Array.from({ length: SLOTS }, (_, index) => slotOf({ level: level % LEVELS, index }))

/** Whether a timer with this time lies in this bucket or an earlier bucket of the same slot. */
export const isIn = (at: number, { level, index }: Bucket): boolean => Math.floor(at / widthOf(level)) <= index

/** Returns the bucket of a slot that holds a timer with this time. */
export function bucketIn(slot: string, at: number): Bucket {
  const level = Number(slot.charAt(0))
  return { level, index: Math.floor(at / widthOf(level)) }
}

/** Returns the key that stands for a bucket in the queue. */
export const keyOf = ({ level, index }: Bucket): string => `${level}.${index}`

export function bucketOf(key: string): Bucket {
  const [level, index] = key.split('.').map(Number)
  return { level: level ?? Number.NaN, index: index ?? Number.NaN }
}
