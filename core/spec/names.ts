import { hash } from 'node:crypto'
import { controllerOf, groupOf, type KubeObject } from '#contracts'
import type { ReconcilerSpec } from './reconciler.ts'

/**
 * Returns the name that a reconciler has in its marks, field managers and finalizers. It stays when the reconciler is
 * renamed.
 */
export const identityOf = (name: string, { identity = name }: Pick<ReconcilerSpec, 'identity'>): string => identity

/** Kubernetes limits the part of a key after the slash to 63 characters. */
export const keyName = (identity: string): string =>
  identity.length <= 63 ? identity : hash('sha256', identity).slice(0, 63)

/** The label of the permissions of a reconciler, with its name. */
export const RECONCILER_LABEL = 'fairlead.dev/reconciler'

/** Returns the label of the permissions of a reconciler. */
export const reconcilerLabel = (name: string): Record<string, string> => ({ [RECONCILER_LABEL]: keyName(name) })

const FINALIZERS = 'fairlead.dev/'

/** Returns the finalizer of a reconciler that has `finalize`. */
export const finalizerOf = (identity: string): string => `${FINALIZERS}${keyName(identity)}`

/** Returns the finalizer of a Reconciler object, also if its specification is refused. */
export const finalizerOfReconciler = ({ metadata: { name }, ...object }: KubeObject): string =>
  finalizerOf(identityOf(name, object['spec'] ?? {}))

/** Returns the finalizers of reconcilers that an object has. */
export const reconcilerFinalizers = ({ metadata }: KubeObject): string[] =>
  (metadata.finalizers ?? []).filter((finalizer) => finalizer.startsWith(FINALIZERS))

/** The prefix of the names that metadataManagerOf() returns. */
export const METADATA_MANAGERS = 'metadata.fairlead.dev/'

/**
 * Returns the field manager of the labels and annotations that a reconciler keeps on its objects. The annotation with
 * their fingerprint has the same name.
 */
export const metadataManagerOf = (identity: string): string => `${METADATA_MANAGERS}${keyName(identity)}`

/** The prefix of the names that contestAnnotationOf() returns. */
export const CONTESTS = 'contested.fairlead.dev/'

/**
 * Returns the annotation that names the other managers that change the labels and annotations that a reconciler keeps
 * on its objects.
 */
export const contestAnnotationOf = (identity: string): string => `${CONTESTS}${keyName(identity)}`

/** Whether the object, once it is deleted, waits for this reconciler. */
export const holdsFinalizer = ({ metadata }: KubeObject, identity: string): boolean =>
  (metadata.finalizers ?? []).includes(finalizerOf(identity))

/** Returns the finalizers of an object without that of the reconciler, and without these of former operators. */
export const finalizersWithout = (
  { finalizers = [] }: KubeObject['metadata'],
  identity: string,
  former: readonly string[] = [],
): string[] => finalizers.filter((finalizer) => finalizer !== finalizerOf(identity) && !former.includes(finalizer))

/** The annotation of an object that outlives its owner. It takes the place of an owner reference: `KIND[.GROUP]/NAME/UID`. */
export const RETAINED_FOR = 'fairlead.dev/retained-for'

/** An object that owns another one. It is in the same namespace, or cluster-scoped. */
export interface Owner {
  group: string
  kind: string
  name: string
  uid: string
}

/** Returns the controller of an object or, if it has none, the object that it is retained for. */
export function ownerOf(object: KubeObject): Owner | undefined {
  const controller = controllerOf(object)
  if (controller === undefined) return retainerOf(object)
  const { apiVersion, kind, name, uid } = controller
  return { group: groupOf(apiVersion), kind, name, uid }
}

/**
 * Returns the object that this one is retained for. Undefined if it has a controller, or if the annotation is not
 * valid.
 */
export function retainerOf(object: KubeObject): Owner | undefined {
  const text = object.metadata.annotations?.[RETAINED_FOR]
  if (text === undefined || controllerOf(object) !== undefined) return undefined
  const [type = '', name = '', ...rest] = text.split('/')
  const [kind = '', ...group] = type.split('.')
  const uid = rest.join('/')
  return kind === '' || name === '' || uid === '' ? undefined : { group: group.join('.'), kind, name, uid }
}

/** Returns the value of the annotation RETAINED_FOR for this owner. */
export function retainedFor({ apiVersion, kind, metadata }: KubeObject): string {
  const group = groupOf(apiVersion)
  return `${group === '' ? kind : `${kind}.${group}`}/${metadata.name}/${metadata.uid}`
}

/** Returns the name of the policies of a resource's rules, and of their bindings. */
export const policyNameOf = ({ group, resource }: { group: string; resource: string }): string =>
  `fairlead-${resource}.${group}`

/** Whether the owner has the name and the kind of this object. The uid may differ. */
export const isNamedAs = (owner: Owner, { apiVersion, kind, metadata }: KubeObject): boolean =>
  owner.name === metadata.name && owner.kind === kind && owner.group === groupOf(apiVersion)

/**
 * Whether the object is the owner by its uid. An object of the same name that existed before or after it does not
 * count.
 */
export const isOwnedBy = (child: KubeObject, { metadata: { uid } }: KubeObject): boolean =>
  uid !== undefined && (controllerOf(child) ?? retainerOf(child))?.uid === uid

/**
 * Whether the object may be retained: an annotation names the owner of a retained object, and a reference has no
 * annotations.
 */
export const mayBeRetained = ({ referenceOnly, object }: { referenceOnly: boolean; object: KubeObject }): boolean =>
  referenceOnly && controllerOf(object) === undefined && object.metadata.annotations === undefined

/** Returns the names of all owners of this kind, be they controllers or not. */
export const ownersOfKind = (object: KubeObject, { group, kind }: Pick<Owner, 'group' | 'kind'>): string[] =>
  (object.metadata.ownerReferences ?? [])
    .filter((reference) => reference.kind === kind && groupOf(reference.apiVersion) === group)
    .map(({ name }) => name)
