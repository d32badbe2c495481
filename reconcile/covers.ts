import { hash } from 'node:crypto'

/**
 * Whether every desired field has its value in the observed object. The comparison is strict where the server may
 * normalise values (quantities, empty maps, lists that others extend). A difference found in error costs one apply
 * without effect, which `SettledWrites` remembers.
 */
export function covers(desired: unknown, observed: unknown): boolean {
  if (Array.isArray(desired)) {
    return (
      Array.isArray(observed) &&
      observed.length === desired.length &&
      desired.every((item, index) => covers(item, observed[index]))
    )
  }
  if (isRecord(desired)) {
    return isRecord(observed) && Object.keys(desired).every((field) => covers(desired[field], observed[field]))
  }
  return desired === observed || (desired === null && observed === undefined)
}

/** Whether both are the same JSON value, in any order of fields. */
export function sameJson(one: unknown, other: unknown): boolean {
  if (one === other) return true
  if (Array.isArray(one) || Array.isArray(other)) {
    return (
      Array.isArray(one) &&
      Array.isArray(other) &&
      one.length === other.length &&
      one.every((item, index) => sameJson(item, other[index]))
    )
  }
  if (!isRecord(one) || !isRecord(other)) return false
  const fields = Object.keys(one)
  return (
    fields.length === Object.keys(other).length &&
    fields.every((field) => Object.hasOwn(other, field) && sameJson(one[field], other[field]))
  )
}

export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Returns sixteen characters that differ if the desired state differs, or the order of its fields. */
export const fingerprint = (desired: unknown): string =>
  hash('sha256', JSON.stringify(desired), 'base64url').slice(0, 16)

/** Returns the same JSON value with its fields in alphabetical order. */
export function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (!isRecord(value)) return value
  const fields = Object.keys(value).sort()
  return Object.fromEntries(fields.map((field) => [field, sorted(value[field])]))
}

/**
 * Writes that are known to change nothing: `<resourceVersion> <fingerprint>` by target. The target is an object's uid,
 * followed by `/status` or `/metadata` for these writes. This is an optimisation: a missing entry costs one request
 * without effect.
 */
export type Settled = Readonly<Record<string, string>>
