import type { KubeObject } from '#contracts'
import { BoundedMap } from '#primitives'

/** The capacity in bytes of JSON. */
const CAPACITY = 32 * 1024 * 1024

export interface CachedObject {
  object: KubeObject
  /** The size in bytes of JSON. */
  size: number
}

/** The objects that were added last. One cache for the whole process. */
export type ObjectCache = BoundedMap<string, CachedObject>

export const createObjectCache = (): ObjectCache => new BoundedMap(CAPACITY, ({ size }) => size)
