import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { isRecord } from '#contracts'
import { fieldOf, keysOfList, valueAt } from './rule.ts'
import type { StructuralSchema } from './rules.ts'

/** The keys of an element, by which it is found in a list. */
type ElementKeys = Record<string, string | number | boolean>

/** The name of a field, or the keys of an element. */
type Place = string | ElementKeys

/**
 * What a version cannot hold, at one place: a three-way merge. `base` is what the conversion makes there of the object as the
 * version holds it; the value returns only where that is still so. A side that is left out is an absent field.
 */
export interface Kept {
  at: Place[]
  base?: unknown
  value?: unknown
  /** In place of both: elements of a list that is as long, each by what the version shows of it. */
  items?: [base: unknown, values: unknown[]][]
  /** In place of both: the order of the elements of a list with keys. */
  order?: ElementKeys[]
}

/** Returns what has to be kept so that `restored` makes `value` of `base`. Both are JSON. */
export function keptOf(base: unknown, value: unknown, schema: StructuralSchema | undefined, at: Place[] = []): Kept[] {
  if (isRecord(base) && isRecord(value)) {
    const names = new Set([...Object.keys(base), ...Object.keys(value)])
    return [...names].flatMap((name) =>
      keptOf(valueAt(base, [name]), valueAt(value, [name]), fieldOf(schema, name), [...at, name]),
    )
  }
  if (isDeepStrictEqual(base, value)) return []
  if (Array.isArray(base) && Array.isArray(value)) return keptOfList(base, value, schema, at)
  return [{ at, ...(base !== undefined && { base }), ...(value !== undefined && { value }) }]
}

function keptOfList(base: unknown[], value: unknown[], schema: StructuralSchema | undefined, at: Place[]): Kept[] {
  const keys = keysOfList(schema)
  const [before, after] = [byKeys(base, keys), byKeys(value, keys)]
  if (before !== undefined && after !== undefined) {
    const merged = [...new Set([...before.keys(), ...after.keys()])]
    const found = merged.flatMap((key) => {
      const [one, other] = [before.get(key), after.get(key)]
      return keptOf(one?.item, other?.item, schema?.items, [...at, (other ?? one)?.keys ?? {}])
    })
    const isOrdered = isDeepStrictEqual(
      merged.filter((key) => after.has(key)),
      [...after.keys()],
    )
    return isOrdered ? found : [...found, { at, order: [...after.values()].map((one) => one.keys) }]
  }
  if (value.length === base.length && base.every((one, index) => isShownOf(one, value[index]))) {
    const changed = base.filter((one, index) => !isDeepStrictEqual(one, value[index]))
    const shown = changed.filter((one, index) => changed.findIndex((other) => isDeepStrictEqual(one, other)) === index)
    const valuesOf = (one: unknown) => value.filter((_, index) => isDeepStrictEqual(base[index], one))
    return [{ at, items: shown.map((one) => [one, valuesOf(one)]) }]
  }
  return [{ at, base, value }]
}

/** Whether an element is the other one without some of its fields: only then is it clear whose fields they are. */
function isShownOf(shown: unknown, whole: unknown): boolean {
  if (!isRecord(shown) || !isRecord(whole)) return isDeepStrictEqual(shown, whole)
  return Object.keys(shown).every((name) => Object.hasOwn(whole, name) && isShownOf(shown[name], whole[name]))
}

/** The elements by their keys, in order; undefined if an element has no keys, or those of another one. */
function byKeys(
  list: readonly unknown[],
  keys: readonly string[] | undefined,
): Map<string, { keys: ElementKeys; item: unknown }> | undefined {
  if (keys === undefined) return undefined
  const found = new Map<string, { keys: ElementKeys; item: unknown }>()
  for (const item of list) {
    const own = Object.fromEntries(keys.map((key) => [key, valueAt(item, [key])]))
    if (!Object.values(own).every((value) => ['string', 'number', 'boolean'].includes(typeof value))) return undefined
    const id = JSON.stringify(keys.map((key) => own[key]))
    if (found.has(id)) return undefined
    found.set(id, { keys: own as ElementKeys, item })
  }
  return found
}

/** Returns the value with what was kept of it, except where the value is not as it was: there an edit wins. */
export const restored = (value: unknown, kept: readonly Kept[]): unknown =>
  kept.reduce((now, one) => {
    const [root, ...rest] = one.at
    // Nothing comes out of nothing: the API server converts parts of objects too.
    const isPart = rest.length > 0 && typeof root === 'string' && !isRecord(valueAt(now, [root]))
    return isPart ? now : restoredAt(now, one.at, one)
  }, value)

function restoredAt(now: unknown, [place, ...rest]: readonly Place[], kept: Kept): unknown {
  if (place === undefined) return restoredHere(now, kept)
  if (typeof place === 'string') {
    if (now !== undefined && !isRecord(now)) return now
    const before = valueAt(now, [place])
    const after = restoredAt(before, rest, kept)
    if (after === before) return now
    const others = Object.entries(now ?? {}).filter(([name]) => name !== place || after !== undefined)
    return { ...Object.fromEntries(others), ...(after !== undefined && { [place]: after }) }
  }
  if (!Array.isArray(now)) return now
  const index = now.findIndex((item) => isAt(item, place))
  if (index === -1 && rest.length > 0) return now
  const after = restoredAt(now[index], rest, kept)
  if (after === now[index]) return now
  const [before, behind] = index === -1 ? [now, []] : [now.slice(0, index), now.slice(index + 1)]
  return [...before, ...(after === undefined ? [] : [after]), ...behind]
}

const isAt = (item: unknown, keys: ElementKeys): boolean =>
  Object.entries(keys).every(([key, value]) => valueAt(item, [key]) === value)

function restoredHere(now: unknown, { base, value, items, order }: Kept): unknown {
  if (items !== undefined) return Array.isArray(now) ? now.map((item, index) => itemAt(now, item, index, items)) : now
  if (order !== undefined) return Array.isArray(now) ? inOrder(now, order) : now
  if (isDeepStrictEqual(now, base)) return value
  if (!Array.isArray(now) || !Array.isArray(base) || !Array.isArray(value)) return now
  // The version shows the first elements alone: the others are not what was edited.
  const isLonger = value.length > base.length && isDeepStrictEqual(value.slice(0, base.length), base)
  const others = isLonger ? value.slice(base.length) : []
  return [...now, ...others.filter((item) => !now.some((one) => isDeepStrictEqual(one, item)))]
}

/** An element that the version shows several times has its values while as many are there, or if these are equal. */
function itemAt(list: unknown[], item: unknown, index: number, kept: NonNullable<Kept['items']>): unknown {
  const [, values] = kept.find(([base]) => isDeepStrictEqual(base, item)) ?? []
  if (values === undefined) return item
  const [first] = values
  if (values.every((value) => isDeepStrictEqual(value, first))) return first
  const isLike = (other: unknown): boolean => isDeepStrictEqual(other, item)
  return list.filter(isLike).length === values.length ? values[list.slice(0, index).filter(isLike).length] : item
}

function inOrder(list: unknown[], order: readonly ElementKeys[]): unknown[] {
  const placeOf = (item: unknown): number => order.findIndex((keys) => isAt(item, keys)) + 1 || order.length + 1
  return list.toSorted((one, other) => placeOf(one) - placeOf(other))
}

const scalar = z.union([z.string(), z.number(), z.boolean()])
const keys = z.record(z.string(), scalar)
const entry = z.strictObject({
  at: z.tuple([z.enum(['spec', 'status'])], z.union([z.string(), keys])),
  base: z.unknown().optional(),
  value: z.unknown().optional(),
  items: z.array(z.tuple([z.unknown(), z.array(z.unknown()).min(1)])).optional(),
  order: z.array(keys).optional(),
})
const annotation = z.array(z.tuple([z.string(), z.array(entry)]))

/**
 * Reads the annotation: what is kept for each version. A text of another form keeps nothing. Users may write it, as they
 * may write the fields that it sets: it is below spec and status.
 */
export function readKept(text: string | undefined): Map<string, Kept[]> {
  try {
    return new Map(annotation.parse(JSON.parse(text ?? '[]')) as [string, Kept[]][])
  } catch {
    return new Map()
  }
}

/** Returns the annotation; undefined if nothing is kept. */
export function writeKept(kept: ReadonlyMap<string, readonly Kept[]>): string | undefined {
  const lists = [...kept].filter(([, list]) => list.length > 0)
  return lists.length === 0 ? undefined : JSON.stringify(lists.sort(([one], [other]) => (one < other ? -1 : 1)))
}
