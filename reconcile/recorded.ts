import type { KubeObject } from '#contracts'

/** The placeholder for confidential values in a record. */
export const WITHHELD = '(withheld)'

/**
 * Returns an object without its contents: the names of its fields, and the metadata that identify it. Annotations are
 * left out, because they may hold a copy of the whole object. The object may be incomplete, as a function returned it.
 */
export function withoutContents({ apiVersion, kind, metadata, ...content }: KubeObject): KubeObject {
  const { name, namespace, uid, resourceVersion, labels, ownerReferences } = metadata ?? {}
  const kept = { name, namespace, uid, resourceVersion, labels, ownerReferences }
  const known = Object.entries(kept).filter(([, value]) => value !== undefined)
  return {
    apiVersion,
    kind,
    metadata: Object.fromEntries(known) as unknown as KubeObject['metadata'],
    ...Object.fromEntries(Object.entries(content).map(([field, value]) => [field, withoutValues(value)])),
  }
}

export const withoutValues = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.keys(value).map((key) => [key, WITHHELD]))
    : WITHHELD
