import { type ResourceRef, resourceName } from '#contracts'

/** What one watch is for. */
export interface WatchScope {
  ref: ResourceRef
  /** Undefined: all of them. */
  namespace: string | undefined
}

export const nameOf = ({ ref, namespace }: WatchScope): string => [resourceName(ref), namespace ?? ''].join(' ')
