import type { KubeObject } from '#contracts'
import { type ObjectSelector, parseFieldSelector } from './field-selector.ts'
import { valuesAt } from './fields.ts'
import type { RelatedResource, SelectedResource } from './reconciler.ts'
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

/** Where the objects related to one primary are; which of them count, isRelated() says. */
export interface RelatedLookup {
  /** Undefined: in all namespaces. Cluster-scoped objects have none and are related all the same. */
  namespace: string | undefined
  /** Undefined: of any name. */
  names: string[] | undefined
}

export function relatedLookup(related: RelatedResource, primary: KubeObject): RelatedLookup {
  return {
    namespace: related.within === 'Cluster' ? undefined : primary.metadata.namespace,
    names: related.byName === undefined ? undefined : namesAt(primary, related.byName),
  }
}

/**
 * Step by step, since a selector is parsed once per declaration, and names are looked up once per primary. Throws
 * SelectorError.
 */
export function relation(related: RelatedResource): (primary: KubeObject) => ObjectSelector {
  const selects = selectionOf(related)
  return (primary) => {
    const { namespace, names } = relatedLookup(related, primary)
    const isNamed = names && new Set(names)
    return (object) => {
      const isNear = namespace === undefined || [undefined, namespace].includes(object.metadata.namespace)
      return isNear && (isNamed?.has(object.metadata.name) ?? true) && selects(object)
    }
  }
}

/** The names that a field of the primary gives: itself, or each in a list. */
export const namesAt = (primary: KubeObject, path: string): string[] => [
  ...new Set(valuesAt(primary, path).filter((value) => typeof value === 'string' && value !== '') as string[]),
]
