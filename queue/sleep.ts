/**
 * Where timers sleep, as a hierarchical timing wheel: a timer that is far ahead lies in a wide bucket, and moves to a
 * narrower one when the time of its bucket has come. Each level has SLOTS buckets, so the state part of a subject has
 * at most LEVELS × SLOTS more values: a compare-and-set looks at all of them.
 */
export interface Bucket {
  level: number
  /** Since the epoch, in widths of its level. */
  index: number
}

const LEVELS = 7
const SLOTS = 8
const NARROWEST_MS = 8000
/** A bucket is opened so long before its first timer is due. */
const LEAD_MS = 1000

const widthOf = (level: number): number => NARROWEST_MS * SLOTS ** level

/** When somebody has to look into the bucket. */
export const opensAt = ({ level, index }: Bucket): number => index * widthOf(level) - LEAD_MS

/** The bucket of a timer. Undefined: it is due at most 9 s after `from`, too near to sleep. */
export function bucketFor(at: number, from: number): Bucket | undefined {
  let level = 0
  while (level < LEVELS - 1 && at - from >= widthOf(level + 1) + LEAD_MS) level++
  const bucket = { level, index: Math.floor(at / widthOf(level)) }
  return opensAt(bucket) <= from ? undefined : bucket
}

/** In the subject of a record: shared with buckets that are earlier or later by a whole turn of the wheel. */
export const slotOf = ({ level, index }: Bucket): string => `${level}${index % SLOTS}`

/** The slots of one level; levels are counted on and on. */
export const slotsOf = (level: number): string[] =>
  Array.from({ length: SLOTS }, (_, index) => slotOf({ level: level % LEVELS, index }))

/** Of this bucket or an earlier one of its slot. */
export const isIn = (at: number, { level, index }: Bucket): boolean => Math.floor(at / widthOf(level)) <= index

/** The bucket of a slot that a timer with this time lies in. */
export function bucketIn(slot: string, at: number): Bucket {
  const level = Number(slot.charAt(0))
  return { level, index: Math.floor(at / widthOf(level)) }
}

/** A bucket as a key of the queue. */
export const keyOf = ({ level, index }: Bucket): string => `${level}.${index}`

export function bucketOf(key: string): Bucket {
  const [level, index] = key.split('.').map(Number)
  return { level: level ?? Number.NaN, index: index ?? Number.NaN }
}
