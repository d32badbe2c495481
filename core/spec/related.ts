import type { KubeObject } from '#contracts'
import { NAMESPACE_NAME, type RelatedResource, type SelectedResource } from './reconciler.ts'
import { type ObjectSelector, parseFieldSelector, parseSelector, valuesAt } from './selector.ts'

/** Returns whether an object is selected by namespaces, labels and fields. Throws SelectorError. */
export function selectionOf({ selector, fieldSelector, namespaces }: SelectedResource): ObjectSelector {
  const labelsMatch = parseSelector(selector ?? '')
  const fieldsMatch = parseFieldSelector(fieldSelector ?? '')
  return (object) => {
    const { namespace, labels = {} } = object.metadata
    const isInside = namespaces === undefined || namespace === undefined || namespaces.includes(namespace)
    return isInside && labelsMatch(labels) && fieldsMatch(object)
  }
}

/** Where to look for the objects related to one primary. relation() decides which of them count. */
export interface RelatedLookup {
  /** Undefined: all namespaces. */
  namespaces: string[] | undefined
  /** Whether cluster-scoped objects are related too. */
  clusterScoped: boolean
  /** Undefined: any name. */
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
        : namespacesAt(primary, namespacePath),
    clusterScoped: namespacePath === undefined,
    names: byName === undefined ? undefined : namesAt(primary, byName),
  }
}

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

/** Whether the primary names its related objects outside of its metadata. */
export const isNamedInBody = ({ byName = 'metadata', namespacePath = 'metadata' }: RelatedResource): boolean =>
  [byName, namespacePath].some((path) => !/^metadata\b/.test(path))

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
      (isNamed?.has(object.metadata.name) ?? true) &&
      selects(object)
  }
}

/** Returns the names that a field of the primary gives. The field has one name, or a list of them. */
export const namesAt = (primary: KubeObject, path: string): string[] => [
  ...new Set(valuesAt(primary, path).filter((value) => typeof value === 'string' && value !== '') as string[]),
]

/** Returns the namespaces that a field of the primary gives. Skips a text that is not a valid name of a namespace. */
export const namespacesAt = (primary: KubeObject, path: string): string[] =>
  namesAt(primary, path).filter((name) => NAMESPACE_NAME.test(name))
