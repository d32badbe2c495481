import { controllerOf, type KubeObject } from '#contracts'

/** The annotation of an object that outlives its owner. It takes the place of an owner reference: `KIND[.GROUP]/NAME/UID`. */
export const RETAINED_FOR = 'fairlead.dev/retained-for'

/** The object that another one belongs to. It is in the same namespace, or cluster-scoped. */
export interface Owner {
  group: string
  kind: string
  name: string
  uid: string
}

/** The controller of an object or, where it has none, the object that it is retained for. */
export function ownerOf(object: KubeObject): Owner | undefined {
  const controller = controllerOf(object)
  if (controller === undefined) return retainerOf(object)
  const { apiVersion, kind, name, uid } = controller
  return { group: groupOf(apiVersion), kind, name, uid }
}

/** The object that this one is retained for; undefined where it has a controller, or the annotation cannot be read. */
export function retainerOf(object: KubeObject): Owner | undefined {
  const text = object.metadata.annotations?.[RETAINED_FOR]
  if (text === undefined || controllerOf(object) !== undefined) return undefined
  const [type = '', name = '', ...rest] = text.split('/')
  const [kind = '', ...group] = type.split('.')
  const uid = rest.join('/')
  return kind === '' || name === '' || uid === '' ? undefined : { group: group.join('.'), kind, name, uid }
}

/** The value of the annotation. */
export function retainedFor({ apiVersion, kind, metadata }: KubeObject): string {
  const group = groupOf(apiVersion)
  return `${group === '' ? kind : `${kind}.${group}`}/${metadata.name}/${metadata.uid}`
}

/** Whether the owner has the name and the kind of that object; its uid may be another one. */
export const isNamedAs = (owner: Owner, { apiVersion, kind, metadata }: KubeObject): boolean =>
  owner.name === metadata.name && owner.kind === kind && owner.group === groupOf(apiVersion)

/** Owned by this very object, not by another one of its name before or after it. */
export const isOwnedBy = (child: KubeObject, { metadata: { uid } }: KubeObject): boolean =>
  uid !== undefined && (controllerOf(child) ?? retainerOf(child))?.uid === uid

const groupOf = (apiVersion: string): string => (apiVersion.includes('/') ? (apiVersion.split('/')[0] ?? '') : '')
