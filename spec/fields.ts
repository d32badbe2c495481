import type { KubeObject } from '#contracts'

const STEP = String.raw`[A-Za-z0-9_-]+|\['[^']+'\]|\[\*\]`
/**
 * The form of a path: `spec.configMapName`, `spec.volumes[*].configMap.name`,
 * `metadata.annotations['example.com/config']`.
 */
export const FIELD_PATH = new RegExp(String.raw`^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\['[^']+'\]|\[\*\])*$`)

/** Returns every value at a path of the form FIELD_PATH, and an empty list if a step is missing. */
export function valuesAt(object: KubeObject, path: string): unknown[] {
  let values: unknown[] = [object]
  for (const [step] of path.matchAll(new RegExp(STEP, 'g')))
    values = values.flatMap((value) => stepInto(value, step)).filter((value) => value !== undefined && value !== null)
  return values
}

function stepInto(value: unknown, step: string): unknown[] {
  if (step === '[*]') return Array.isArray(value) ? value : []
  if (typeof value !== 'object' || value === null) return []
  const key = step.startsWith('[') ? step.slice(2, -2) : step
  return Object.hasOwn(value, key) ? [(value as Record<string, unknown>)[key]] : []
}
