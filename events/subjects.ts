import type { ResourceRef } from '#contracts'
import { decodeSubjectPart, encodeSubjectPart, NONE, SubjectError } from './subject-part.ts'

/** Which object: unique within a cluster. `namespace` is undefined for cluster-scoped objects. */
export interface ObjectKey {
  ref: ResourceRef
  namespace: string | undefined
  name: string
}

/** The controller owner of an object, where its kind is the `for` of some Reconciler. */
export interface OwnerKey {
  /** Plural, lower-case. */
  resource: string
  name: string
}

/** Objects by what is given; everything left out matches all. */
export interface ObjectFilter {
  ref?: ResourceRef
  namespace?: string
  /** Only what has no namespace. */
  clusterScoped?: boolean
  /** Only what that object controls, or what is retained for it. */
  owner?: OwnerKey
  name?: string
}

export interface SubjectParts extends ObjectKey {
  owner: OwnerKey | undefined
}

/** Owner part of what nobody controls. */
export const NO_OWNER = NONE

/**
 * The queue key of an object, two parts: `<namespace|_>.<name>`. Flat: what is kept for many objects must not keep the
 * parts that V8 makes a longer string of, nor what these were cut from.
 */
export const keyOf = (namespace: string | undefined, name: string): string =>
  [optional(namespace), encodeSubjectPart(name)].join('.')

export function parseKey(key: string): { namespace: string | undefined; name: string } {
  const [namespace, name, ...rest] = key.split('.')
  if (namespace === undefined || name === undefined || rest.length > 0)
    throw new SubjectError(`${key} is not a queue key`)
  return { namespace: decodeOptional(namespace), name: decodeSubjectPart(name) }
}

export function isKey(key: string): boolean {
  try {
    return parseKey(key).name !== ''
  } catch {
    return false
  }
}

/** `namespace/name`, or the name alone, as the command takes it; a key that is none of ours stays as it is. */
export function shownKey(key: string): string {
  if (!isKey(key)) return key
  const { namespace, name } = parseKey(key)
  return namespace === undefined ? name : `${namespace}/${name}`
}

/** `k8s.<group>.<version>.<resource>.<namespace>.<owner>.<name>`: where the last event of an object is kept. */
export const objectSubject = ({ ref, namespace, name, owner }: SubjectParts): string =>
  `${resourcePrefix(ref)}.${optional(namespace)}.${ownerPart(owner)}.${encodeSubjectPart(name)}`

/** The object whatever its owner: at most a few subjects, of which the newest version counts. Flat, as keyOf() is. */
export const identityFilter = ({ ref, namespace, name }: ObjectKey): string =>
  [resourcePrefix(ref), optional(namespace), '*', encodeSubjectPart(name)].join('.')

/** What this owner controls of one resource. A cluster-scoped owner has children in any namespace. */
export const childrenFilter = (ref: ResourceRef, namespace: string | undefined, owner: OwnerKey): string =>
  `${resourcePrefix(ref)}.${namespace === undefined ? '*' : encodeSubjectPart(namespace)}.${ownerPart(owner)}.*`

/** identityFilter of the object whose subject this is. */
export const identityOf = (subject: string): string => withOwnerPart(subject, '*')

/** The subject of the same object under another owner. */
export function withOwnerPart(subject: string, owner: string): string {
  let start = 0
  for (let dots = 0; dots < OWNER_PLACE; dots++) start = subject.indexOf('.', start) + 1
  const end = subject.indexOf('.', start)
  return [subject.slice(0, start - 1), owner, subject.slice(end + 1)].join('.')
}

/** Parts before the owner's. */
const OWNER_PLACE = 5

/** Whether a filter of the kinds above, `*` its only wildcard, covers a subject. */
export function matcherOf(filter: string): (subject: string) => boolean {
  const wanted = filter.split('.')
  const wildcard = filter.indexOf('*')
  const beginning = wildcard === -1 ? filter : filter.slice(0, wildcard)
  return (subject) => {
    if (!subject.startsWith(beginning)) return false
    const parts = subject.split('.')
    return wanted.length === parts.length && wanted.every((part, at) => part === '*' || part === parts[at])
  }
}

export const objectFilter = ({ ref, namespace, clusterScoped = false, owner, name }: ObjectFilter = {}): string =>
  [
    ref ? resourcePrefix(ref) : 'k8s.*.*.*',
    clusterScoped ? NONE : namespace === undefined ? '*' : encodeSubjectPart(namespace),
    owner === undefined ? '*' : ownerPart(owner),
    name === undefined ? '*' : encodeSubjectPart(name),
  ].join('.')

/** All objects of a kind, in every version of its API. */
export const kindFilter = ({ group, resource }: Pick<ResourceRef, 'group' | 'resource'>): string =>
  `k8s.${group === '' ? NONE : encodeSubjectPart(group)}.*.${encodeSubjectPart(resource)}.*.*.*`

/** Where the watch cursor of a resource is kept; `scope` is a namespace, undefined for all of them. */
export const cursorSubject = (ref: ResourceRef, scope?: string): string => `cursor.${refTokens(ref)}.${optional(scope)}`

export function parseObjectSubject(subject: string): SubjectParts {
  const parts = subject.split('.')
  if (parts.length !== 7 || parts[0] !== 'k8s') throw new SubjectError(`${subject} is not the subject of an object`)
  const [, group, version, resource, namespace, owner, name] = parts as [string, ...string[]] & { length: 7 }
  return {
    ref: parseRef(group, version, resource),
    namespace: decodeOptional(namespace ?? ''),
    owner: parseOwner(owner ?? ''),
    name: decodeSubjectPart(name ?? ''),
  }
}

export function parseCursorSubject(subject: string): { ref: ResourceRef; scope: string | undefined } {
  const [head, group, version, resource, scope, ...rest] = subject.split('.')
  if (head !== 'cursor' || scope === undefined || rest.length > 0)
    throw new SubjectError(`${subject} is not the subject of a watch cursor`)
  return { ref: parseRef(group, version, resource), scope: decodeOptional(scope) }
}

/** `<resource>~<name>`, or `_`: encodeSubjectPart never leaves a `~`, so the two parts cannot run together. */
export const ownerPart = (owner: OwnerKey | undefined): string =>
  owner === undefined ? NO_OWNER : `${encodeSubjectPart(owner.resource)}~${encodeSubjectPart(owner.name)}`

export function parseOwner(part: string): OwnerKey | undefined {
  if (part === NO_OWNER) return undefined
  const [resource, name, ...rest] = part.split('~')
  if (resource === undefined || name === undefined || rest.length > 0) throw new SubjectError(`${part} is not an owner`)
  return { resource: decodeSubjectPart(resource), name: decodeSubjectPart(name) }
}

const refTokens = ({ group, version, resource }: ResourceRef): string =>
  `${group === '' ? NONE : encodeSubjectPart(group)}.${encodeSubjectPart(version)}.${encodeSubjectPart(resource)}`

export const resourcePrefix = (ref: ResourceRef): string => `k8s.${refTokens(ref)}`

const parseRef = (group = '', version = '', resource = ''): ResourceRef => ({
  group: decodeOptional(group) ?? '',
  version: decodeSubjectPart(version),
  resource: decodeSubjectPart(resource),
})

const optional = (text: string | undefined): string => (text === undefined ? NONE : encodeSubjectPart(text))

const decodeOptional = (part: string): string | undefined => (part === NONE ? undefined : decodeSubjectPart(part))
