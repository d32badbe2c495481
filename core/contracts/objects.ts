import { z } from 'zod'

/**
 * A Kubernetes object as plain JSON: timestamps are strings, unknown fields are kept.
 *
 * @example
 * import type { KubeObject } from 'fairlead'
 * const labelsOf = ({ metadata }: KubeObject) => metadata.labels ?? {}
 * labelsOf({ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'a' } }) // => {}
 */
export interface KubeObject {
  apiVersion: string
  kind: string
  metadata: ObjectMeta
  spec?: unknown
  status?: unknown
  [field: string]: unknown
}

/**
 * The metadata of an object. `name` is always set; the API server sets `uid`, `resourceVersion`, `generation` and the
 * timestamps.
 *
 * @example
 * import type { ObjectMeta } from 'fairlead'
 * const isDeleting = ({ deletionTimestamp }: ObjectMeta) => deletionTimestamp !== undefined
 * isDeleting({ name: 'a' }) // => false
 */
export interface ObjectMeta {
  name: string
  namespace?: string
  uid?: string
  resourceVersion?: string
  generation?: number
  creationTimestamp?: string
  deletionTimestamp?: string
  labels?: Record<string, string>
  annotations?: Record<string, string>
  finalizers?: string[]
  ownerReferences?: OwnerReference[]
  [field: string]: unknown
}

export interface OwnerReference {
  apiVersion: string
  kind: string
  name: string
  uid: string
  controller?: boolean
  blockOwnerDeletion?: boolean
}

/** A resource type of the API server; the core group is the empty string. */
export interface ResourceRef {
  group: string
  version: string
  /** The plural, lower-case name in API paths, e.g. `pods`. */
  resource: string
}

/** `v1` or `group/version`, as in an object's apiVersion. */
export const apiVersionOf = ({ group, version }: Pick<ResourceRef, 'group' | 'version'>): string =>
  group === '' ? version : `${group}/${version}`

/** The group of an apiVersion: '' for `v1`. */
export const groupOf = (apiVersion: string): string => apiVersion.split('/').slice(0, -1).join()

/** `at.v1alpha1.example.com`-style name of a resource type, for logs, conditions and metrics: `pods.v1`, `ats.v1alpha1.cnat…`. */
export const resourceName = ({ group, version, resource }: ResourceRef): string =>
  [resource, version, group].filter((part) => part !== '').join('.')

/** `namespace/name`, or `name` for an object of the cluster. */
export const namespacedName = ({ namespace, name }: { namespace?: string | undefined; name: string }): string =>
  namespace === undefined ? name : `${namespace}/${name}`

/** The owner that manages this object, if any: at most one owner reference has `controller: true`. */
export const controllerOf = (object: KubeObject): OwnerReference | undefined =>
  object.metadata.ownerReferences?.find((owner) => owner.controller === true)

const condition = z.object({
  type: z.string().min(1).max(316),
  status: z.enum(['True', 'False', 'Unknown']),
  reason: z.string().min(1).max(1024),
  message: z.string().max(32768).optional(),
  lastTransitionTime: z.iso.datetime({ offset: true }),
  observedGeneration: z.int().min(0).optional(),
})

/** The part of every status that the dispatcher keeps; conditions are those of metav1. */
export const keptStatus = z.object({
  // Other controllers store -1 for an object that they have not seen: it is read, and never written.
  observedGeneration: z
    .int()
    .optional()
    .meta({ description: 'The generation of the object that this status was decided on.', minimum: 0 }),
  conditions: z
    .array(condition)
    .optional()
    .meta({ 'x-kubernetes-list-type': 'map', 'x-kubernetes-list-map-keys': ['type'] }),
})

export type KeptStatus = z.output<typeof keptStatus>

/**
 * The header in which the server of a function names the function, in each of its answers. An answer without the header
 * may come from a proxy.
 */
export const FUNCTION_HEADER = 'fairlead-function'
/** The types of the CloudEvents of requests to a function, and of its answers. */
export const EVENT_TYPES = {
  reconcile: { request: 'dev.fairlead.reconcile', answer: 'dev.fairlead.outcome' },
  read: { request: 'dev.fairlead.read', answer: 'dev.fairlead.external' },
  perform: { request: 'dev.fairlead.perform', answer: 'dev.fairlead.result' },
} as const
/** The header with the version of the function that answers. */
export const REVISION_HEADER = 'fairlead-revision'

/** Whether a value is an object with fields: neither null nor a list. */
export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Returns what a JSON merge patch (RFC 7396) makes of a value. */
export function mergePatched(target: unknown, patch: unknown): unknown {
  if (!isRecord(patch)) return patch
  const result = isRecord(target) ? { ...target } : {}
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete result[name]
    else result[name] = mergePatched(result[name], value)
  }
  return result
}

/** Returns a copy of an object with a value at a path. Other values on the way are replaced by objects. */
export function withValueAt(object: unknown, [step, ...others]: readonly string[], value: unknown): unknown {
  if (step === undefined) return value
  const fields = isRecord(object) ? object : {}
  return { ...fields, [step]: withValueAt(fields[step], others, value) }
}
