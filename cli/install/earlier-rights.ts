import type { KubeObject } from '#contracts'
import { isNotFound, type KubeClient, resourcePath } from '#kube'
import { RECONCILER_LABEL, RECONCILERS, type ReconcilerSpec, reconcilerLabel, SYSTEM_NAMESPACE } from '#spec'
import { collectionOf, found, isInstalled, pathOf } from './installed-objects.ts'
import { LABELS, platformRbac, roleNamesOf } from './rbac.ts'

/** A Reconciler as it is stored: earlier versions may have stored specifications that are now refused. */
export interface StoredReconciler extends KubeObject {
  spec?: Partial<Pick<ReconcilerSpec, 'serviceAccount' | 'finalize' | 'for' | 'owns' | 'related'>>
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

/** The kinds that functionRbac() returns. */
const KINDS = ['RoleBinding', 'ClusterRoleBinding', 'ClusterRole', 'ServiceAccount']

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
