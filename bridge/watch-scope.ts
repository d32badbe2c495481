import { type ResourceRef, resourceName } from '#contracts'

/** The scope of one watch. */
export interface WatchScope {
  ref: ResourceRef
  /** Undefined: all namespaces. */
  namespace: string | undefined
}

export const nameOf = ({ ref, namespace }: WatchScope): string => [resourceName(ref), namespace ?? ''].join(' ')
