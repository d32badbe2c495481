import { isDeepStrictEqual } from 'node:util'
import type { TakenField } from '#reconcile'

type Fields = Record<string, unknown>

export const isRecord = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Applies a JSON merge patch (RFC 7386). */
export function merged(target: unknown, patch: unknown): unknown {
  if (!isRecord(patch)) return patch
  const result: Fields = isRecord(target) ? { ...target } : {}
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete result[name]
    else result[name] = merged(result[name], value)
  }
  return result
}

/**
 * Server-side apply by one manager: sets the wanted fields, removes fields that it wanted before and no longer wants,
 * and keeps fields of other managers. A list counts as one value.
 */
export function applied(current: unknown, before: unknown, wanted: unknown): unknown {
  if (!isRecord(wanted) || !isRecord(current)) return wanted
  const result: Fields = { ...current }
  const dropped = Object.keys(isRecord(before) ? before : {}).filter((name) => !(name in wanted))
  for (const name of dropped) delete result[name]
  for (const [name, value] of Object.entries(wanted))
    result[name] = applied(current[name], isRecord(before) ? before[name] : undefined, value)
  return result
}

/** Returns the wanted fields that another manager has set to other values since `before` was applied. */
export function changedByOthers(wanted: unknown, current: unknown, before: unknown, path = ''): TakenField[] {
  if (current === undefined || isDeepStrictEqual(wanted, current) || isDeepStrictEqual(before, current)) return []
  if (!isRecord(wanted) || !isRecord(current)) return [{ field: path, manager: ANOTHER }]
  const last = isRecord(before) ? before : {}
  return Object.entries(wanted).flatMap(([name, value]) =>
    changedByOthers(value, current[name], last[name], `${path}.${name}`),
  )
}

/** The field manager of all changes by others. */
const ANOTHER = 'another manager'
