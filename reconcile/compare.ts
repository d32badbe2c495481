import { hash } from 'node:crypto'
import { isRecord } from '#contracts'
import { CONTESTS, METADATA_MANAGERS, PATCH_RECORDS } from '#spec'

/**
 * Whether every desired field has its value in the observed object. The comparison is strict where the server may
 * normalise values (quantities, empty maps, lists that others extend). A difference found in error costs one apply
 * without effect, which `NoOpWrites` remembers.
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

/** One value that differs. A side without the value is left out. */
export interface Difference {
  /** `.spec.containers[0].image` */
  path: string
  before?: unknown
  after?: unknown
}

/** Fields that the API server sets, and fields without a meaning for a reader. */
const SILENT = new Set([
  'metadata.managedFields',
  'metadata.resourceVersion',
  'metadata.generation',
  'metadata.uid',
  'metadata.creationTimestamp',
  'metadata.annotations.fairlead.dev/contested',
  'metadata.annotations.fairlead.dev/declared',
  'metadata.annotations.fairlead.dev/desired',
])
/** Annotations with fingerprints, counts and records of what functions keep on objects. */
const KEPT_BY_FUNCTIONS = [METADATA_MANAGERS, CONTESTS, PATCH_RECORDS].map((prefix) => `metadata.annotations.${prefix}`)

/**
 * Returns the differences between two versions of an object, value by value. An empty object or list is a value:
 * `podSelector: {}` selects all pods.
 */
export const differences = (before: unknown, after: unknown): Difference[] => [...walk(before, after, [])]

function* walk(before: unknown, after: unknown, path: readonly (string | number)[]): Generator<Difference> {
  const name = path.join('.')
  if (SILENT.has(name) || KEPT_BY_FUNCTIONS.some((prefix) => name.startsWith(prefix)) || sameJson(before, after)) return
  if (path.length > 0 && (isEmpty(before) || isEmpty(after))) {
    yield difference(path, before, after)
  } else if (Array.isArray(before ?? after) && Array.isArray(after ?? before)) {
    const [old, young] = [before ?? [], after ?? []] as [unknown[], unknown[]]
    for (let index = 0; index < Math.max(old.length, young.length); index++)
      yield* walk(old[index], young[index], [...path, index])
  } else if (isRecord(before ?? after) && isRecord(after ?? before)) {
    const [old, young] = [before ?? {}, after ?? {}] as [Record<string, unknown>, Record<string, unknown>]
    for (const field of new Set([...Object.keys(old), ...Object.keys(young)]))
      yield* walk(old[field], young[field], [...path, field])
  } else {
    yield difference(path, before, after)
  }
}

const isEmpty = (value: unknown): boolean =>
  (Array.isArray(value) || isRecord(value)) && Object.keys(value).length === 0

const difference = (path: readonly (string | number)[], before: unknown, after: unknown): Difference => ({
  path: path.map(step).join(''),
  ...(before !== undefined && { before }),
  ...(after !== undefined && { after }),
})

const step = (key: string | number): string =>
  typeof key === 'number' ? `[${key}]` : /^[A-Za-z_][A-Za-z0-9_-]*$/.test(key) ? `.${key}` : `['${key}']`

/** Fields that identify an item of a list in most kinds: those of conditions, and of containers. */
const ITEM_KEYS = ['type', 'name'] as const

/** Returns the field that identifies the items of a list, undefined if they have none. */
export const itemKeyOf = (list: readonly unknown[]): (typeof ITEM_KEYS)[number] | undefined =>
  ITEM_KEYS.find((key) => list.length > 0 && list.every((item) => isRecord(item) && typeof item[key] === 'string'))

/** Returns the value with a map in place of each list whose items have a type or a name: others may add items to it. */
export function keyed(value: unknown): unknown {
  if (isRecord(value)) return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, keyed(one)]))
  const key = Array.isArray(value) ? itemKeyOf(value) : undefined
  if (!Array.isArray(value) || key === undefined) return value
  return Object.fromEntries(value.map((item: Record<string, unknown>) => [item[key], keyed(item)]))
}
