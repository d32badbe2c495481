import type { KubeObject } from '#contracts'
import { type ObjectSelector, parseFieldSelector } from './field-selector.ts'
import { valuesAt } from './fields.ts'
import { NAMESPACE_NAME, type RelatedResource, type SelectedResource } from './reconciler.ts'
import { parseSelector } from './selector.ts'

/** Whether an object is one that a Reconciler asks for: its namespaces, labels and fields. Throws SelectorError. */
export function selectionOf({ selector, fieldSelector, namespaces }: SelectedResource): ObjectSelector {
  const labelsMatch = parseSelector(selector ?? '')
  const fieldsMatch = parseFieldSelector(fieldSelector ?? '')
  return (object) => {
    const { namespace, labels = {} } = object.metadata
    const isInside = namespaces === undefined || namespace === undefined || namespaces.includes(namespace)
    return isInside && labelsMatch(labels) && fieldsMatch(object)
  }
}

/** Where the objects related to one primary are; which of them count, relation() says. */
export interface RelatedLookup {
  /** Undefined: in all namespaces. */
  namespaces: string[] | undefined
  /** Whether objects without a namespace are related too. */
  clusterScoped: boolean
  /** Undefined: of any name. */
  names: string[] | undefined
}

/** Whether fields of the primary say what is related to it. */
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

/** The namespaces of what is related, where no field of the primary names them; undefined: all. */
export const namespacesNear = ({ within }: RelatedResource, namespace: string | undefined): string[] | undefined =>
  within === 'Cluster' || namespace === undefined ? undefined : [namespace]

/** Whether objects of other namespaces than that of the primary may be related to it. */
export const crossesNamespaces = ({ within, namespacePath }: RelatedResource): boolean =>
  within === 'Cluster' || namespacePath !== undefined

/** Whether another version of the primary names other related objects, or other namespaces of them. */
export const namesOthers = (related: readonly RelatedResource[], before: KubeObject, after: KubeObject): boolean =>
  related.filter(isByField).some((one) => lookupText(one, before) !== lookupText(one, after))

const lookupText = (related: RelatedResource, primary: KubeObject): string =>
  JSON.stringify(relatedLookup(related, primary))

/** Whether metadata alone do not show what the primary names. */
export const isNamedInBody = ({ byName = 'metadata', namespacePath = 'metadata' }: RelatedResource): boolean =>
  [byName, namespacePath].some((path) => !/^metadata\b/.test(path))

/**
 * Step by step, since a selector is parsed once per declaration, and names are looked up once per primary. Throws
 * SelectorError.
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

/** The names that a field of the primary gives: itself, or each in a list. */
export const namesAt = (primary: KubeObject, path: string): string[] => [
  ...new Set(valuesAt(primary, path).filter((value) => typeof value === 'string' && value !== '') as string[]),
]

/** The namespaces that a field of the primary gives. A text that cannot be the name of a namespace gives none. */
export const namespacesAt = (primary: KubeObject, path: string): string[] =>
  namesAt(primary, path).filter((name) => NAMESPACE_NAME.test(name))
