import type { KubeObject, ResourceRef } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import type { CustomResourceDefinition } from '#sdk'
import { holdsFinalizer, RECONCILERS } from '#spec'

export const CRDS = { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' }
const RBAC = { group: 'rbac.authorization.k8s.io', version: 'v1' }
export const FIELD_MANAGER = 'fairlead-install'

/** The resources that can be installed, keyed by kind. */
const RESOURCES: Record<string, ResourceRef> = {
  Secret: { group: '', version: 'v1', resource: 'secrets' },
  Namespace: { group: '', version: 'v1', resource: 'namespaces' },
  ServiceAccount: { group: '', version: 'v1', resource: 'serviceaccounts' },
  ClusterRole: { ...RBAC, resource: 'clusterroles' },
  ClusterRoleBinding: { ...RBAC, resource: 'clusterrolebindings' },
  RoleBinding: { ...RBAC, resource: 'rolebindings' },
  CustomResourceDefinition: CRDS,
  Reconciler: RECONCILERS,
}

export const collectionOf = (kind: string, namespace: string | undefined): string =>
  resourcePath(resourceOf(kind), namespace)

export function pathOf(kind: string, namespace: string | undefined, name: string): string {
  return resourcePath(resourceOf(kind), namespace, name)
}

function resourceOf(kind: string): ResourceRef {
  const ref = RESOURCES[kind]
  if (ref === undefined) throw new TypeError(`the resource of the kind ${kind} is not known`)
  return ref
}

/** Deletes exactly this object: not another one that has its name since. */
export const deleteExactly = async (kube: KubeClient, { kind, metadata }: KubeObject): Promise<void> => {
  const { namespace, name, uid } = metadata
  await kube.delete(pathOf(kind, namespace, name), { uid }).catch((error: unknown) => {
    if (!isNotFound(error) && !isConflict(error)) throw error
  })
}

export const found = <T extends object>(kube: KubeClient, path: string): Promise<T | undefined> =>
  kube.get<T>(path).catch((error: unknown) => {
    if (isNotFound(error)) return undefined
    throw error
  })

interface Managed {
  managedFields?: { manager?: string; operation?: string }[]
}

/** Whether install() has applied the object. */
export const isInstalled = ({ metadata }: KubeObject): boolean =>
  ((metadata as Managed).managedFields ?? []).some(
    ({ manager, operation }) => manager === FIELD_MANAGER && operation === 'Apply',
  )

/**
 * Describes what a definition has stored: one of its objects, or that this is unknown. Returns undefined if there is no
 * object.
 */
export async function storedUnder(
  kube: KubeClient,
  { spec: { group, names, versions } }: CustomResourceDefinition,
): Promise<string | undefined> {
  const version = versions.find(({ served }) => served)
  if (version === undefined) return 'no version of it is served, so that its objects cannot be listed'
  const path = resourcePath({ group, version: version.name, resource: names.plural })
  try {
    for await (const { items } of kube.list(path, { limit: 1 }))
      return items[0] && `objects are stored under it, such as ${titleOf(items[0])}`
  } catch (error) {
    // The CRD is not established yet.
    if (!isNotFound(error)) throw error
  }
  return undefined
}

/** Returns the objects of the kind that have the finalizer of the reconciler with this identity. */
export async function holders(kube: KubeClient, kind: ResourceRef, identity: string): Promise<KubeObject[]> {
  const found: KubeObject[] = []
  try {
    for await (const { items } of kube.list(resourcePath(kind)))
      found.push(...items.filter((object) => holdsFinalizer(object, identity)))
  } catch (error) {
    // The definition does not exist, so its objects do not exist either.
    if (!isNotFound(error)) throw error
  }
  return found
}

/** Returns `namespace/name`, or the name. */
export const titleOf = ({ metadata: { namespace, name } }: KubeObject): string =>
  namespace === undefined ? name : `${namespace}/${name}`
