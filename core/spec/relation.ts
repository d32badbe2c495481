import type { KubeObject } from '#contracts'
import { NAMESPACE_NAME } from './forms.ts'
import { relationValues } from './named-kinds.ts'
import { type Owner, ownersOfKind } from './names.ts'
import { recordedNames } from './patch-record.ts'
import { indexedSelection, type RelatedResource, selectionOf } from './reconciler.ts'
import { type ObjectSelector, valuesAt } from './selector.ts'

/** Where to look for the objects related to one primary. relation() decides which of them count. */
export interface RelatedLookup {
  /** Undefined: all namespaces. */
  namespaces: string[] | undefined
  /** Whether cluster-scoped objects are related too. */
  clusterScoped: boolean
  /** The names of the objects, or with `naming` those in their field. Undefined: any name. */
  names: string[] | undefined
}

/** Whether fields of the primary name the related objects or their namespaces. */
export const isByField = ({ byName, namespacePath }: RelatedResource): boolean =>
  byName !== undefined || namespacePath !== undefined

export function relatedLookup(related: RelatedResource, primary: KubeObject): RelatedLookup {
  const { byName, namespacePath } = related
  return {
    namespaces:
      namespacePath === undefined
        ? namespacesNear(related, primary.metadata.namespace)
        : namespacesOf(related, primary, namespacePath),
    clusterScoped: namespacePath === undefined,
    names: byName === undefined ? nameOf(related, primary.metadata) : namesOf(related, primary, byName),
  }
}

/** Returns the name of the primary, if the related objects give it. */
const nameOf = ({ naming }: RelatedResource, { name }: KubeObject['metadata']): string[] | undefined =>
  naming === undefined ? undefined : [name]

/** Returns the namespaces of the related objects if no field of the primary names them. Undefined: all namespaces. */
export const namespacesNear = ({ within }: RelatedResource, namespace: string | undefined): string[] | undefined =>
  within === 'Cluster' || namespace === undefined ? undefined : [namespace]

/** Whether objects outside the primary's namespace may be related to it. */
export const crossesNamespaces = ({ within, namespacePath }: RelatedResource): boolean =>
  within === 'Cluster' || namespacePath !== undefined

/** Whether the two versions of the primary name different related objects, or different namespaces of them. */
export const namesOthers = (related: readonly RelatedResource[], before: KubeObject, after: KubeObject): boolean =>
  related.filter(isByField).some((one) => lookupText(one, before) !== lookupText(one, after))

const lookupText = (related: RelatedResource, primary: KubeObject): string =>
  JSON.stringify(relatedLookup(related, primary))

/**
 * Whether the primary names its related objects in what a reference to it does not have: outside of its metadata, or in
 * a record.
 */
export const isNamedInBody = ({ record, ...related }: RelatedResource): boolean => {
  const { byName = 'metadata', namespacePath = 'metadata', kindPath = 'metadata' } = related
  return record !== undefined || [byName, namespacePath, kindPath].some((path) => !/^metadata\b/.test(path))
}

/**
 * Returns the predicate in two steps: the selector is parsed once per declaration, and the names are looked up once per
 * primary. Throws SelectorError.
 */
export function relation(related: RelatedResource): (primary: KubeObject) => ObjectSelector {
  const selects = selectionOf(related)
  return (primary) => {
    const { namespaces, clusterScoped, names } = relatedLookup(related, primary)
    const isNamed = names && new Set(names)
    const isInside = namespaces && new Set<string | undefined>(clusterScoped ? [...namespaces, undefined] : namespaces)
    return (object) =>
      (isInside?.has(object.metadata.namespace) ?? true) &&
      (isNamed === undefined || namesFor(related, object).some((name) => isNamed.has(name))) &&
      (!related.byOwner || isReferredTo(object, primary)) &&
      selects(object)
  }
}

/** Returns the names by which the object is related. */
const namesFor = ({ naming }: RelatedResource, object: KubeObject): string[] =>
  naming === undefined ? [object.metadata.name] : namesAt(object, naming)

/** Whether an owner reference of the object names this owner, be it as its controller or not. */
const isReferredTo = (child: KubeObject, { metadata: { uid } }: KubeObject): boolean =>
  uid !== undefined && (child.metadata.ownerReferences ?? []).some((reference) => reference.uid === uid)

/** Whether the related object names its primaries, by owner references or in a field. */
export const isByObjects = ({ byOwner, naming }: RelatedResource): boolean => byOwner === true || naming !== undefined

/** Returns the names of the primaries, or with `byName` the names in their fields, that a related object names. `of`: the kind of the primaries. */
export const primariesIn = (
  { naming }: RelatedResource,
  object: KubeObject,
  of: Pick<Owner, 'group' | 'kind'>,
): string[] => (naming === undefined ? ownersOfKind(object, of) : namesAt(object, naming))

const LONGEST_NAME = 253

/** Returns the names in the field of a related object. No object has a longer name. */
const namesAt = (object: KubeObject, naming: string): string[] =>
  namesIn(valuesAt(object, naming)).filter(({ length }) => length <= LONGEST_NAME)

/** Whether the related object names its primaries outside of its metadata. */
export const namesInBody = ({ naming = 'metadata' }: RelatedResource): boolean => !/^metadata\b/.test(naming)

/** Returns the names of the related objects that the primary gives. `path`: `byName` of the relation. */
export const namesOf = (related: RelatedResource, primary: KubeObject, path: string): string[] =>
  related.record === undefined
    ? namesIn(relationValues(related, primary, path))
    : recordedNames(primary, related.record, related)

/**
 * Returns the namespaces that the primary gives. `path`: `namespacePath` of the relation. Skips a text that is not a valid
 * name of a namespace.
 */
export const namespacesOf = (related: RelatedResource, primary: KubeObject, path: string): string[] =>
  namesIn(relationValues(related, primary, path)).filter((name) => NAMESPACE_NAME.test(name))

/** A field has one name, or a list of them. */
const namesIn = (values: readonly unknown[]): string[] => [
  ...new Set(values.filter((value) => typeof value === 'string' && value !== '') as string[]),
]

/** Returns the selection of a relation in the form that an index of EVENTS needs. With `naming`, queries ask it for one name. */
export function relatedSelection(related: RelatedResource) {
  const { naming } = related
  const selection = indexedSelection(related)
  if (naming === undefined) return selection
  const namesIn = (object: KubeObject) => namesAt(object, naming)
  return { ...selection, text: JSON.stringify([selection.text, naming]), byFields: true, namesIn }
}
