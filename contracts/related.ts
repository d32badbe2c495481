import type { KubeObject } from './objects.ts'
import { parseSelector } from './selector.ts'

/** `.spec.secretName`, `.spec.volumes[*].claimName` */
export const FIELD_PATH = /^(?:\.[A-Za-z_][A-Za-z0-9_-]*(?:\[\*\])?)+$/

/** The strings at a field path; what is absent or no string is left out. */
export function namesAt(object: KubeObject, path: string): Set<string> {
  let values: unknown[] = [object]
  for (const step of path.slice(1).split('.')) {
    const isList = step.endsWith('[*]')
    const found = values.map((value) => fieldOf(value, isList ? step.slice(0, -3) : step))
    values = isList ? found.flatMap((value) => (Array.isArray(value) ? (value as unknown[]) : [])) : found
  }
  return new Set(values.filter((value) => typeof value === 'string'))
}

/**
 * Whether a function that is called for `primary` is given this object of a related resource, and so whether a change
 * of the one is a reason to run for the other.
 */
export function isRelated(
  { selector, byName }: { selector?: string | undefined; byName?: string | undefined },
  primary: KubeObject,
  object: KubeObject,
): boolean {
  const { namespace, name, labels = {} } = object.metadata
  const home = primary.metadata.namespace
  return (
    (home === undefined || namespace === undefined || namespace === home) &&
    (byName === undefined || namesAt(primary, byName).has(name)) &&
    (selector === undefined || parseSelector(selector)(labels))
  )
}

const fieldOf = (value: unknown, field: string): unknown =>
  typeof value === 'object' && value !== null && Object.hasOwn(value, field)
    ? (value as Record<string, unknown>)[field]
    : undefined
