import type { KubeObject, ResourceRef } from '#contracts'
import { isConflict, isForbidden, isNotFound, type KubeClient, resourcePath } from '#kube'
import type { CustomResourceDefinition } from '#sdk'
import {
  holdsFinalizer,
  RECONCILER_LABEL,
  RECONCILERS,
  type ReconcilerSpec,
  reconcilerLabel,
  SYSTEM_NAMESPACE,
} from '#spec'
import { LABELS, platformRbac, roleNamesOf } from './rbac.ts'

export const CRDS = { group: 'apiextensions.k8s.io', version: 'v1', resource: 'customresourcedefinitions' }
const RBAC = { group: 'rbac.authorization.k8s.io', version: 'v1' }
const ADMISSION = { group: 'admissionregistration.k8s.io', version: 'v1' }
/** By which the API server asks validate. */
export const CONFIGURATIONS = { ...ADMISSION, resource: 'validatingwebhookconfigurations' }
export const FIELD_MANAGER = 'fairlead-install'

/** The resources that can be installed, keyed by kind. */
const RESOURCES: Record<string, ResourceRef> = {
  Secret: { group: '', version: 'v1', resource: 'secrets' },
  Service: { group: '', version: 'v1', resource: 'services' },
  Namespace: { group: '', version: 'v1', resource: 'namespaces' },
  ServiceAccount: { group: '', version: 'v1', resource: 'serviceaccounts' },
  ClusterRole: { ...RBAC, resource: 'clusterroles' },
  ClusterRoleBinding: { ...RBAC, resource: 'clusterrolebindings' },
  Role: { ...RBAC, resource: 'roles' },
  RoleBinding: { ...RBAC, resource: 'rolebindings' },
  CustomResourceDefinition: CRDS,
  ValidatingAdmissionPolicy: { ...ADMISSION, resource: 'validatingadmissionpolicies' },
  ValidatingAdmissionPolicyBinding: { ...ADMISSION, resource: 'validatingadmissionpolicybindings' },
  MutatingAdmissionPolicy: { ...ADMISSION, resource: 'mutatingadmissionpolicies' },
  MutatingAdmissionPolicyBinding: { ...ADMISSION, resource: 'mutatingadmissionpolicybindings' },
  ValidatingWebhookConfiguration: CONFIGURATIONS,
  Reconciler: RECONCILERS,
}

/** Called with the progress, in one line. */
export type Says = (what: string) => void

export interface Installed {
  kind: string
  namespace?: string
  name: string
  result: 'created' | 'configured' | 'unchanged' | 'deleted'
}

const collectionOf = (kind: string, namespace: string | undefined): string => resourcePath(resourceOf(kind), namespace)

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
  managedFields?: { manager?: string }[]
}

/** Whether install() has written the object. */
export const isInstalled = ({ metadata }: KubeObject): boolean =>
  ((metadata as Managed).managedFields ?? []).some(({ manager }) => manager === FIELD_MANAGER)

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
    // The user is a team, which may list in its namespaces only.
    if (isForbidden(error)) return 'whether objects are stored under it may not be seen'
    // The CRD is not established yet.
    if (!isNotFound(error)) throw error
  }
  return undefined
}

/** Returns the objects of the kind that have the finalizer of the reconciler with this identity, in all namespaces or in these. */
export async function holders(
  kube: KubeClient,
  kind: ResourceRef,
  identity: string,
  namespaces: readonly (string | undefined)[] = [undefined],
): Promise<KubeObject[]> {
  const found: KubeObject[] = []
  try {
    for (const namespace of namespaces)
      for await (const { items } of kube.list(resourcePath(kind, namespace)))
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

/** A Reconciler as it is stored: earlier versions may have stored specifications that are now refused. */
export interface StoredReconciler extends KubeObject {
  spec?: Partial<
    Pick<ReconcilerSpec, 'serviceAccount' | 'finalize' | 'for' | 'owns' | 'related' | 'patches' | 'external' | 'invoke'>
  >
}

/** Returns all Reconcilers of the cluster, keyed by name. */
export async function storedReconcilers(kube: KubeClient): Promise<Map<string, StoredReconciler>> {
  const stored = new Map<string, StoredReconciler>()
  try {
    for await (const { items } of kube.list<StoredReconciler>(resourcePath(RECONCILERS)))
      for (const one of items) stored.set(one.metadata.name, one)
  } catch (error) {
    // The definition of Reconcilers does not exist.
    if (!isNotFound(error)) throw error
  }
  return stored
}

/** Whether the Reconciler names the kind of a definition; with `versions`, in one of these. */
export const isNamedIn = (
  { spec }: StoredReconciler,
  { spec: { group, names } }: CustomResourceDefinition,
  versions?: readonly string[],
): boolean =>
  [spec?.for, ...(spec?.owns ?? []), ...(spec?.related ?? []), ...(spec?.patches ?? [])].some(
    (ref) => ref?.group === group && ref.resource === names.plural && versions?.includes(ref.version) !== false,
  )

/** The kinds that functionRbac() returns. */
const KINDS = ['RoleBinding', 'ClusterRoleBinding', 'Role', 'ClusterRole', 'ServiceAccount']

/**
 * Returns the accounts, roles and bindings that an earlier installation of these functions has left, and that are not
 * in `generated`: bindings first, accounts last. Objects of others are left out: what install() has not applied, or has
 * applied for another function, and accounts that another Reconciler names or that are Fairlead's own.
 */
export async function earlierRights(
  kube: KubeClient,
  functions: readonly string[],
  generated: readonly KubeObject[],
  stored: ReadonlyMap<string, StoredReconciler>,
): Promise<KubeObject[]> {
  if (functions.length === 0) return []
  const owners = new Map(functions.map((name) => [reconcilerLabel(name)[RECONCILER_LABEL], name]))
  const names = new Set(functions.flatMap(roleNamesOf))
  const kept = new Set(generated.map(identityOf))
  const isOfFunctions = (object: KubeObject): boolean => {
    const label = object.metadata.labels?.[RECONCILER_LABEL]
    const isNamed = names.has(object.metadata.name)
    if (label === undefined) return isNamed && isInstalled(object)
    const owner = owners.get(label)
    // A copy of a role has its label too.
    return owner !== undefined && (isInstalled(object) || roleNamesOf(owner).includes(object.metadata.name))
  }
  const others = [...stored.values()].filter(({ metadata }) => !functions.includes(metadata.name))
  const isUsed = ({ kind, metadata }: KubeObject): boolean =>
    kind === 'ServiceAccount' && others.some((one) => isAccountOf(one, metadata))
  const candidates: KubeObject[] = []
  for (const kind of KINDS) candidates.push(...(await labelled(kube, kind)).filter(isOfFunctions))
  candidates.push(...(await declaredAccounts(kube, functions, stored)))
  const distinct = new Map(candidates.map((object) => [identityOf(object), object]))
  return [...distinct]
    .filter(([id, object]) => !kept.has(id) && !isUsed(object) && !isOfPlatform(object))
    .map(([, object]) => object)
}

async function labelled(kube: KubeClient, kind: string): Promise<KubeObject[]> {
  const objects: KubeObject[] = []
  const labelSelector = Object.entries(LABELS)
    .map((pair) => pair.join('='))
    .join()
  const namespace = kind === 'ServiceAccount' ? SYSTEM_NAMESPACE : undefined
  for await (const { items } of kube.list(collectionOf(kind, namespace), { labelSelector })) objects.push(...items)
  return objects
}

/** Returns the accounts that the stored declarations name, if install() has made them. They have no label of a function. */
async function declaredAccounts(
  kube: KubeClient,
  functions: readonly string[],
  stored: ReadonlyMap<string, StoredReconciler>,
): Promise<KubeObject[]> {
  const accounts: KubeObject[] = []
  for (const name of functions) {
    const account = stored.get(name)?.spec?.serviceAccount
    if (account?.namespace !== SYSTEM_NAMESPACE) continue
    const there = await found<KubeObject>(kube, pathOf('ServiceAccount', account.namespace, account.name))
    if (there !== undefined && isInstalled(there)) accounts.push(there)
  }
  return accounts
}

/** Whether the Reconciler runs as this account. */
export const isAccountOf = (
  { metadata, spec }: StoredReconciler,
  account: { name: string; namespace?: string },
): boolean => {
  const { name = `fairlead-${metadata.name}`, namespace = SYSTEM_NAMESPACE } = spec?.serviceAccount ?? {}
  return account.name === name && account.namespace === namespace
}

/** Whether the object is one of the platform: a function may name the account of a dispatcher. */
export const isOfPlatform = (object: KubeObject): boolean =>
  platformRbac().some((own) => identityOf(own) === identityOf(object))

const identityOf = ({ kind, metadata: { namespace = '', name } }: KubeObject): string => `${kind} ${namespace}/${name}`
