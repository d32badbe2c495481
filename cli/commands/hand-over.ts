import { controllerOf, groupOf, isRecord, type KubeObject } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { fieldManagerOf, markedBy, ownershipMark, RECONCILER_ANNOTATION } from '#reconcile'
import type { Kind, Reconciler } from '#sdk'
import { RETAINED_FOR, retainedFor } from '#spec'

const SECRETS = { group: '', version: 'v1', resource: 'secrets' }

/**
 * Marks what others have made for the objects of the functions until now, so that these may write it. Nothing else of an object
 * changes, so that the others may run on until they are stopped. Returns the number of objects that are marked now.
 */
export async function handOver(kube: KubeClient, functions: readonly Reconciler[]): Promise<number> {
  let marked = 0
  for (const one of functions)
    marked += one.succeeds === undefined ? await markDeclared(kube, one, functions) : await markRecorded(kube, one)
  return marked
}

/** Marks what the framework of an adapter has made for the objects of a function that one of its controllers declares. */
async function markDeclared(kube: KubeClient, one: Reconciler, functions: readonly Reconciler[]): Promise<number> {
  const { declaredBy } = one
  const adapts = functions.find(({ name }) => name === declaredBy?.function)?.adapts
  if (declaredBy === undefined || adapts === undefined) return 0
  let marked = 0
  const owners = new Set<string>()
  for await (const { items } of kube.list(resourcePath(one.for), { labelSelector: one.selector }))
    for (const { metadata } of items) owners.add(metadata.uid ?? '')
  for (const owned of one.owns)
    for await (const { items } of kube.list<KubeObject>(resourcePath(owned)))
      for (const object of items) {
        const owner = controllerOf(object)
        const isOwned =
          owner?.kind === one.for.kind && groupOf(owner.apiVersion) === one.for.group && owners.has(owner.uid)
        if (!isOwned || isMarked(object) || !adapts.made(object, declaredBy.with.object)) continue
        const mark = ownershipMark(one.name, { metadata: { uid: owner.uid } }, object)
        if (await isPatched(kube, owned, object, { annotations: { [RECONCILER_ANNOTATION]: mark } })) marked++
      }
  return marked
}

const isMarked = ({ metadata: { annotations = {} } }: KubeObject): boolean =>
  annotations[RECONCILER_ANNOTATION] !== undefined

/** Marks what a former operator has recorded for each object of a function. */
async function markRecorded(kube: KubeClient, one: Reconciler): Promise<number> {
  let marked = 0
  for (const namespace of one.namespaces ?? [undefined])
    for (const owner of await ownersIn(kube, one, namespace)) {
      // Others have never been served by the former operator.
      if (!owner.metadata.finalizers?.some((name) => one.formerFinalizers?.includes(name))) continue
      const records: KubeObject[] = []
      const where = { labelSelector: one.succeeds?.recordsOf(owner) }
      for await (const { items } of kube.list<KubeObject>(resourcePath(SECRETS, owner.metadata.namespace), where))
        records.push(...items.filter(({ metadata }) => isNamedIn(metadata, owner)))
      if (records.length === 0) continue
      for (const made of one.succeeds?.made(records) ?? []) {
        const owned = one.owns.find(({ kind, group }) => kind === made.kind && group === groupOf(made.apiVersion))
        if (owned !== undefined && (await isHandedOver(kube, one, owner, owned, made.metadata.name))) marked++
      }
    }
  return marked
}

const isNamedIn = ({ ownerReferences = [] }: KubeObject['metadata'], owner: KubeObject): boolean =>
  ownerReferences.some(({ uid }) => uid === owner.metadata.uid)

/** Returns the objects of a function: none, before its kind is served. */
async function ownersIn(kube: KubeClient, { for: primary, selector }: Reconciler, namespace: string | undefined) {
  const owners: KubeObject[] = []
  try {
    for await (const { items } of kube.list<KubeObject>(resourcePath(primary, namespace), { labelSelector: selector }))
      owners.push(...items)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
  return owners
}

/**
 * Whether an object is marked now. Its fields pass from the former operator to the function: otherwise one that the function
 * returns no longer would stay, as a field of the former operator. An object without a controller outlives its owner, as before.
 */
async function isHandedOver(
  kube: KubeClient,
  { name, identity = name, succeeds }: Reconciler,
  owner: KubeObject,
  owned: Kind<unknown>,
  called: string,
): Promise<boolean> {
  const path = resourcePath(owned, owner.metadata.namespace, called)
  const object = await kube.get<KubeObject>(path).catch((error: unknown) => {
    if (isNotFound(error)) return undefined
    throw error
  })
  if (object === undefined) return false
  const controller = controllerOf(object)
  if (controller !== undefined && controller.uid !== owner.metadata.uid) return false
  const managedFields = succeededFields(object, fieldManagerOf(identity), succeeds?.wrote ?? (() => false))
  if (markedBy(owner, object) === identity && managedFields === undefined) return false
  const annotations = {
    [RECONCILER_ANNOTATION]: ownershipMark(identity, owner, object),
    ...(controller === undefined && { [RETAINED_FOR]: retainedFor(owner) }),
  }
  return isPatched(kube, owned, object, { annotations, ...(managedFields && { managedFields }) })
}

interface ManagedFields {
  manager?: string
  operation?: string
  apiVersion?: string
  subresource?: string
  fieldsV1?: Record<string, unknown>
}

/** Returns the managed fields with those of the former operator as fields of this manager. Undefined: there are none. */
function succeededFields(
  { metadata }: KubeObject,
  manager: string,
  wrote: (fields: object) => boolean,
): ManagedFields[] | undefined {
  const entries = (metadata['managedFields'] ?? []) as ManagedFields[]
  const isOwn = (one: ManagedFields) => one.manager === manager && one.operation === 'Apply' && !one.subresource
  const former = entries.filter((one) => !isOwn(one) && !one.subresource && wrote(one.fieldsV1 ?? {}))
  const [first] = former
  const own = entries.filter(isOwn)
  // The fields of another version may have other names.
  if (first === undefined || [...former, ...own].some(({ apiVersion }) => apiVersion !== first.apiVersion))
    return undefined
  const fieldsV1 = [...former, ...own].reduce<Record<string, unknown>>((all, one) => union(all, one.fieldsV1 ?? {}), {})
  const left = entries.filter((one) => !former.includes(one) && !own.includes(one))
  return [...left, { ...first, manager, operation: 'Apply', fieldsV1 }]
}

function union(one: Record<string, unknown>, other: Record<string, unknown>): Record<string, unknown> {
  const all = { ...one }
  for (const [name, value] of Object.entries(other)) {
    const known = all[name]
    all[name] = isRecord(known) && isRecord(value) ? union(known, value) : value
  }
  return all
}

/** An object that has changed or is gone is left to the next installation. */
const isPatched = (
  kube: KubeClient,
  kind: Kind<unknown>,
  { metadata: { namespace, name, resourceVersion } }: KubeObject,
  metadata: object,
): Promise<boolean> =>
  kube
    .patch(resourcePath(kind, namespace, name), { metadata: { resourceVersion, ...metadata } }, 'merge', {
      fieldManager: 'fairlead-install',
    })
    .then(
      () => true,
      (error: unknown) => {
        if (isConflict(error) || isNotFound(error)) return false
        throw error
      },
    )
