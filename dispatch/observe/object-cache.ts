import type { KubeObject } from '#contracts'
import { BoundedMap } from '#primitives'

/** Bytes of JSON. */
const CAPACITY = 32 * 1024 * 1024

export interface CachedObject {
  object: KubeObject
  /** As JSON text. */
  size: number
}

/** The objects that were added last. One for the whole process. */
export type ObjectCache = BoundedMap<string, CachedObject>

export const createObjectCache = (): ObjectCache => new BoundedMap(CAPACITY, ({ size }) => size)
