import { createHash } from 'node:crypto'
import type { ResourceRef } from '#contracts'

/*
 * Why the owner is a part of an object's subject: a run reads the objects that its primary owns. With the owner in the
 * subject, one filter for each kind selects exactly these (childrenFilter). No process needs an index of all owned
 * objects, which would have to be built at each start and followed before a run may trust it. The price is that an
 * object whose owner changes moves to another subject: the writer then marks the copy on the former subject as moved
 * (version-conflict.ts), and a reader of one object uses a wildcard for the owner (identityFilter).
 */

/** Thrown for a string that Kubernetes never accepts as a name, or a subject that no object has. */
export class SubjectError extends TypeError {
  override readonly name = 'SubjectError'
}

/** The part that means "none": no namespace, no owner, the core group. */
export const NONE = '_'
const PLAIN = /^[A-Za-z0-9_-]+$/
/**
 * The longest part in characters. nats-server closes a connection that sends a line over 4096 bytes (max_control_line),
 * and a subject has two parts of free length, for owner and name. ASCII names of up to 253 characters stay below the
 * limit.
 */
const MAX_PART = 768
const MAX_HEAD = 32
/** The decoded form of a longer name. It contains a `%`, which no Kubernetes name may have. */
const SHORTENED = /^([^]{1,32})%([0-9a-f]{64})$/

/**
 * Encodes any non-empty string as one part of a subject (NATS: a token): every UTF-8 byte outside `A-Za-z0-9_-` becomes
 * `%XX`, and the string `_` becomes `%5F`. A string that is too long keeps its first 32 characters, followed by `=` and
 * the SHA-256 of the whole string. Such strings occur because RBAC has no maximum name length, and Kubernetes does not
 * check owner references. Two strings have the same part only if their hashes collide.
 */
export function encodeSubjectPart(text: string): string {
  if (PLAIN.test(text) && text.length <= MAX_PART) return text === NONE ? '%5F' : text
  if (text === '') throw new SubjectError('an empty name cannot be part of a subject')
  if (!text.isWellFormed()) throw new SubjectError(`${JSON.stringify(text)} is not valid Unicode`)
  const [, head, digest] = SHORTENED.exec(text) ?? []
  if (head !== undefined) return `${escaped(head)}=${digest}`
  const part = escaped(text)
  return part.length <= MAX_PART ? part : `${escaped(headOf(text))}=${sha256(text)}`
}

/**
 * Decodes exactly the results of encodeSubjectPart. A string that was too long comes back as its first characters, `%`
 * and the hash, which encodes to the same part.
 */
export function decodeSubjectPart(part: string): string {
  if (PLAIN.test(part) && part !== NONE && part.length <= MAX_PART) return part
  const text = unescaped(part.replace(/=(?=[0-9a-f]{64}$)/, '%25'))
  if (text === undefined || encodeSubjectPart(text) !== part) throw new SubjectError(`${part} is not an escaped name`)
  return text
}

/** Whether the name is a shortened form, because the name is too long for a part. */
export const isShortened = (name: string): boolean => SHORTENED.test(name)

const escaped = (text: string): string =>
  encodeURIComponent(text).replaceAll(/[.!~*'()]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

/** Returns the first characters, never half of a surrogate pair. */
const headOf = (text: string): string => text.slice(0, MAX_HEAD).replace(/[\uD800-\uDBFF]$/, '')

function unescaped(part: string): string | undefined {
  try {
    return decodeURIComponent(part)
  } catch {
    return undefined
  }
}

/** The identity of an object within a cluster. `namespace` is undefined for cluster-scoped objects. */
export interface ObjectKey {
  ref: ResourceRef
  namespace: string | undefined
  name: string
}

/** The controller owner of an object, if its kind is the `for` of a Reconciler. */
export interface OwnerKey {
  /** The plural name of the resource in lower case. */
  resource: string
  name: string
}

/** Selects objects by the fields that are given. Fields that are left out match all objects. */
export interface ObjectFilter {
  ref?: ResourceRef
  namespace?: string
  /** True: only objects without a namespace. */
  clusterScoped?: boolean
  /** Only objects that this owner controls, or that are retained for it. */
  owner?: OwnerKey
  name?: string
}

export interface SubjectParts extends ObjectKey {
  owner: OwnerKey | undefined
}

/** The owner part of an object without a controller. */
export const NO_OWNER = '_'

/**
 * Returns the queue key of an object, two parts: `<namespace|_>.<name>`. The string is flat, because V8 would otherwise
 * keep the strings that it was made from, for each of many objects.
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

/**
 * Returns the key as the command line shows it: `namespace/name`, or the name alone. A text that is not such a key is
 * returned unchanged.
 */
export function shownKey(key: string): string {
  if (!isKey(key)) return key
  const { namespace, name } = parseKey(key)
  return namespace === undefined ? name : `${namespace}/${name}`
}

/** Returns the subject of an object's last event: `k8s.<group>.<version>.<resource>.<namespace>.<owner>.<name>`. */
export const objectSubject = ({ ref, namespace, name, owner }: SubjectParts): string =>
  `${resourcePrefix(ref)}.${optional(namespace)}.${ownerPart(owner)}.${encodeSubjectPart(name)}`

/**
 * Returns the filter for an object under any owner: at most a few subjects, of which the newest version counts. Flat,
 * like the result of keyOf().
 */
export const identityFilter = ({ ref, namespace, name }: ObjectKey): string =>
  [resourcePrefix(ref), optional(namespace), '*', encodeSubjectPart(name)].join('.')

/**
 * Returns the filter for the objects of one resource that this owner controls. A cluster-scoped owner has children in
 * any namespace.
 */
export const childrenFilter = (ref: ResourceRef, namespace: string | undefined, owner: OwnerKey): string =>
  `${resourcePrefix(ref)}.${namespace === undefined ? '*' : encodeSubjectPart(namespace)}.${ownerPart(owner)}.*`

/** Returns the identityFilter of the object with this subject. */
export const identityOf = (subject: string): string => withOwnerPart(subject, '*')

/** Returns the subject of the same object under another owner. */
export function withOwnerPart(subject: string, owner: string): string {
  let start = 0
  for (let dots = 0; dots < OWNER_PLACE; dots++) start = subject.indexOf('.', start) + 1
  const end = subject.indexOf('.', start)
  return [subject.slice(0, start - 1), owner, subject.slice(end + 1)].join('.')
}

/** The number of parts before the owner. */
const OWNER_PLACE = 5

/** Returns a function that tests whether a filter covers a subject. `*` is the only wildcard. */
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

/** The largest number of namespaces that are read by filters of their own. */
const MOST_PLACES = 64

/**
 * Returns the filters of a resource in these namespaces, and whether an object that they find counts. The
 * server compares each filter with each other one, so for many namespaces everything is read.
 */
export function placesOf(
  ref: ResourceRef,
  namespaces: readonly string[] | undefined,
  withoutNamespace: boolean,
): { places: ObjectFilter[]; includes: (namespace: string | undefined) => boolean } {
  if (namespaces === undefined) return { places: [{ ref }], includes: () => true }
  const wanted = new Set<string | undefined>(namespaces)
  if (withoutNamespace) wanted.add(undefined)
  const includes = (namespace: string | undefined) => wanted.has(namespace)
  if (wanted.size > MOST_PLACES) return { places: [{ ref }], includes }
  const placeOf = (namespace: string | undefined): ObjectFilter =>
    namespace === undefined ? { ref, clusterScoped: true } : { ref, namespace }
  return { places: [...wanted].map(placeOf), includes }
}

/** Returns the filter for all objects of a kind, in every version of its API. */
export const kindFilter = ({ group, resource }: Pick<ResourceRef, 'group' | 'resource'>): string =>
  `k8s.${group === '' ? NONE : encodeSubjectPart(group)}.*.${encodeSubjectPart(resource)}.*.*.*`

/** Returns the subject of the watch cursor of a resource. `scope` is a namespace; undefined means all namespaces. */
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

/**
 * Returns `<resource>~<name>`, or `_` without an owner. encodeSubjectPart never produces a `~`, so the two parts stay
 * distinct.
 */
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
