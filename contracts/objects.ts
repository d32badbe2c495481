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

/** `at.v1alpha1.example.com`-style name of a resource type, for logs, conditions and metrics: `pods.v1`, `ats.v1alpha1.cnat…`. */
export const resourceName = ({ group, version, resource }: ResourceRef): string =>
  [resource, version, group].filter((part) => part !== '').join('.')

/** `namespace/name`, or `name` for an object of the cluster. */
export const namespacedName = ({ namespace, name }: { namespace?: string | undefined; name: string }): string =>
  namespace === undefined ? name : `${namespace}/${name}`

/** The owner that manages this object, if any: at most one owner reference has `controller: true`. */
export const controllerOf = (object: KubeObject): OwnerReference | undefined =>
  object.metadata.ownerReferences?.find((owner) => owner.controller === true)
