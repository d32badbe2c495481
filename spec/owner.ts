import { controllerOf, type KubeObject } from '#contracts'

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

/** Whether the owner has the name and the kind of this object. The uid may differ. */
export const isNamedAs = (owner: Owner, { apiVersion, kind, metadata }: KubeObject): boolean =>
  owner.name === metadata.name && owner.kind === kind && owner.group === groupOf(apiVersion)

/**
 * Whether the object is the owner by its uid. An object of the same name that existed before or after it does not
 * count.
 */
export const isOwnedBy = (child: KubeObject, { metadata: { uid } }: KubeObject): boolean =>
  uid !== undefined && (controllerOf(child) ?? retainerOf(child))?.uid === uid

const groupOf = (apiVersion: string): string => (apiVersion.includes('/') ? (apiVersion.split('/')[0] ?? '') : '')
