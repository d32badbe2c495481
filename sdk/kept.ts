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
  /**
   * In place of both: elements of a list without keys, in order. Each has its value, then those behind it that the version
   * does not show, and what the version shows of it; the ones at the front that it does not show have no such part.
   */
  items?: [values: unknown[], base?: unknown][]
  /** In place of both: the order of the elements of a list with keys, as the conversion makes it and as it is. */
  order?: [before: ElementKeys[], after: ElementKeys[]]
}

/** Returns what has to be kept so that `restored` makes `value` of `base`. Both are JSON. */
export function keptOf(base: unknown, value: unknown, schema: StructuralSchema | undefined, at: Place[] = []): Kept[] {
  // Fields of an object that the version does not show at all are kept one by one: a client may make the object.
  const fields = base === undefined && isRecord(value) && Object.keys(value).length > 0 ? {} : base
  if (isRecord(fields) && isRecord(value)) {
    const names = new Set([...Object.keys(fields), ...Object.keys(value)])
    return [...names].flatMap((name) =>
      keptOf(valueAt(fields, [name]), valueAt(value, [name]), fieldOf(schema, name), [...at, name]),
    )
  }
  if (isDeepStrictEqual(base, value)) return []
  return (
    (Array.isArray(base) && Array.isArray(value) && keptOfList(base, value, schema, at)) || [whole(at, base, value)]
  )
}

const whole = (at: Place[], base: unknown, value: unknown): Kept => ({
  at,
  ...(base !== undefined && { base }),
  ...(value !== undefined && { value }),
})

function keptOfList(
  base: unknown[],
  value: unknown[],
  schema: StructuralSchema | undefined,
  at: Place[],
): Kept[] | undefined {
  const keys = keysOfList(schema)
  const [before, after] = [byKeys(base, keys), byKeys(value, keys)]
  if (before === undefined || after === undefined) {
    const items = isSet(schema) && new Set(value.map(canonical)).size < value.length ? undefined : itemsOf(base, value)
    return items && [{ at, items }]
  }
  const merged = [...new Set([...before.keys(), ...after.keys()])]
  const found = merged.flatMap((id) => {
    const [one, other] = [before.get(id), after.get(id)]
    const here = [...at, (other ?? one)?.keys ?? {}]
    return one && other ? keptOf(one.item, other.item, schema?.items, here) : [whole(here, one?.item, other?.item)]
  })
  const isOrdered = isDeepStrictEqual(
    merged.filter((id) => after.has(id)),
    [...after.keys()],
  )
  const keysIn = (list: Keyed): ElementKeys[] => [...list.values()].map((one) => one.keys)
  return isOrdered ? found : [...found, { at, order: [keysIn(before), keysIn(after)] }]
}

const isSet = (schema: StructuralSchema | undefined): boolean => schema?.['x-kubernetes-list-type'] === 'set'

/** Undefined if a value is not a shown element with more fields: then it is not clear whose fields they are. */
function itemsOf(base: readonly unknown[], value: readonly unknown[]): Kept['items'] {
  const rows: { shown?: string; row: [values: unknown[], base?: unknown] }[] = [{ row: [[]] }]
  for (const item of value) {
    const next = base[rows.length - 1]
    if (rows.length <= base.length && isShownOf(next, item)) rows.push({ shown: canonical(next), row: [[item], next] })
    else rows.at(-1)?.row[0].push(item)
  }
  if (rows.length <= base.length) return undefined
  const isMore = ({ row: [values, shown] }: (typeof rows)[number]): boolean => !isDeepStrictEqual(values, [shown])
  const more = new Set(
    rows
      .slice(1)
      .filter(isMore)
      .map((one) => one.shown),
  )
  return rows.flatMap(({ shown, row }) => ((shown === undefined ? row[0].length > 0 : more.has(shown)) ? [row] : []))
}

/** Whether an element is the other one without some of its fields. */
function isShownOf(shown: unknown, item: unknown): boolean {
  if (Array.isArray(shown) && Array.isArray(item))
    return shown.length === item.length && shown.every((one, index) => isShownOf(one, item[index]))
  if (!isRecord(shown) || !isRecord(item)) return isDeepStrictEqual(shown, item)
  return Object.keys(shown).every((name) => Object.hasOwn(item, name) && isShownOf(shown[name], item[name]))
}

/** The same text for equal values. */
const canonical = (value: unknown): string =>
  JSON.stringify(value, (_, one: unknown) =>
    isRecord(one) ? Object.fromEntries(Object.entries(one).sort(([name], [other]) => (name < other ? -1 : 1))) : one,
  )

const idOf = (item: unknown, keys: readonly string[]): string =>
  canonical(Object.fromEntries(keys.map((key) => [key, valueAt(item, [key])])))

type Keyed = Map<string, { keys: ElementKeys; item: unknown }>

/** The elements by their keys, in order; undefined if an element has no keys, or those of another one. */
function byKeys(list: readonly unknown[], keys: readonly string[] | undefined): Keyed | undefined {
  if (keys === undefined) return undefined
  const found: Keyed = new Map()
  for (const item of list) {
    const own = Object.fromEntries(keys.map((key) => [key, valueAt(item, [key])]))
    if (!Object.values(own).every((value) => ['string', 'number', 'boolean'].includes(typeof value))) return undefined
    found.set(canonical(own), { keys: own as ElementKeys, item })
  }
  return found.size === list.length ? found : undefined
}

/** Returns a body with what was kept of it, except where the value is not as it was: there an edit wins. */
export function restored(body: object, kept: readonly Kept[], schema: StructuralSchema | undefined): object {
  // Nothing comes out of nothing: the API server converts parts of objects too.
  const isThere = ({ at: [root] }: Kept): boolean => typeof root === 'string' && isRecord(valueAt(body, [root]))
  return restoredAt(body, kept.filter(isThere), schema) as object
}

function restoredAt(now: unknown, kept: readonly Kept[], schema: StructuralSchema | undefined): unknown {
  const below = new Map<string, Below>()
  for (const { at, ...what } of kept) {
    const [place, ...rest] = at
    if (place === undefined) continue
    const id = canonical(place)
    const found = below.get(id) ?? { place, kept: [] }
    found.kept.push({ at: rest, ...what })
    below.set(id, found)
  }
  const [first] = below.values()
  const after =
    first === undefined
      ? now
      : typeof first.place === 'string'
        ? inFields(now, below, schema)
        : inElements(now, below, schema)
  return kept.filter(({ at }) => at.length === 0).reduce((value, one) => restoredHere(value, one, schema), after)
}

interface Below {
  place: Place
  kept: Kept[]
}

function inFields(now: unknown, below: ReadonlyMap<string, Below>, schema: StructuralSchema | undefined): unknown {
  if (now !== undefined && !isRecord(now)) return now
  const fields = new Map(Object.entries(now ?? {}))
  for (const { place, kept } of below.values()) {
    const name = typeof place === 'string' ? place : canonical(place)
    const field = restoredAt(fields.get(name), kept, fieldOf(schema, name))
    if (field === undefined) fields.delete(name)
    else fields.set(name, field)
  }
  return now === undefined && fields.size === 0 ? now : Object.fromEntries(fields)
}

function inElements(now: unknown, below: ReadonlyMap<string, Below>, schema: StructuralSchema | undefined): unknown {
  if (now !== undefined && !Array.isArray(now)) return now
  const keys = keysOfList(schema) ?? []
  const left = new Map(below)
  const list = (now ?? []).flatMap((item: unknown) => {
    const id = idOf(item, keys)
    left.delete(id)
    const element = restoredAt(item, below.get(id)?.kept ?? [], schema?.items)
    return element === undefined ? [] : [element]
  })
  // An element that is gone does not return with what was kept of it.
  const hidden = [...left.values()].flatMap(({ kept }) => kept.filter(({ at }) => at.length === 0))
  const added = hidden.flatMap(({ base, value }) => (base === undefined && value !== undefined ? [value] : []))
  return now === undefined && added.length === 0 ? now : [...list, ...added]
}

function restoredHere(
  now: unknown,
  { base, value, items, order }: Kept,
  schema: StructuralSchema | undefined,
): unknown {
  if (items === undefined && order === undefined)
    return isDeepStrictEqual(now, base) || (isNothing(now) && isNothing(base)) ? value : now
  if (now !== undefined && !Array.isArray(now)) return now
  const list = items ? withItems(now ?? [], items, schema) : inOrder(now ?? [], order ?? [[], []], schema)
  return now === undefined && list.length === 0 ? now : list
}

/** Many clients leave out what is empty. */
const isNothing = (value: unknown): boolean =>
  value === undefined || (typeof value === 'object' && value !== null && Object.keys(value).length === 0)

/** Elements that the version shows alike get their values in order. */
function withItems(
  now: readonly unknown[],
  items: NonNullable<Kept['items']>,
  schema: StructuralSchema | undefined,
): unknown[] {
  const front = items.flatMap((row) => (row.length === 1 ? row[0] : []))
  const rows = new Map<string, unknown[][]>()
  for (const [values, ...base] of items)
    for (const shown of base) {
      const id = canonical(shown)
      const alike = rows.get(id) ?? []
      alike.push(values)
      rows.set(id, alike)
    }
  const list = now.flatMap((item) => rows.get(canonical(item))?.shift() ?? [item])
  const behind = [...rows.values()].flat().flatMap(([, ...hidden]) => hidden)
  const all = [...front, ...list, ...behind]
  return isSet(schema) ? [...new Map(all.map((item) => [canonical(item), item])).values()] : all
}

/** Elements that are new stay behind the one before them. A client that has reordered the elements wins. */
function inOrder(
  list: unknown[],
  [before, after]: NonNullable<Kept['order']>,
  schema: StructuralSchema | undefined,
): unknown[] {
  const ids = list.map((item) => idOf(item, keysOfList(schema) ?? []))
  const [was, is] = [before.map(canonical), after.map(canonical)]
  const [there, shown] = [new Set(ids), new Set(was)]
  if (
    !isDeepStrictEqual(
      was.filter((id) => there.has(id)),
      ids.filter((id) => shown.has(id)),
    )
  )
    return list
  const places = new Map(is.map((id, index) => [id, index]))
  let last = -1
  const ranked = list.map((item, index) => {
    last = places.get(ids[index] ?? '') ?? last
    return { item, rank: last }
  })
  return ranked.toSorted((one, other) => one.rank - other.rank).map(({ item }) => item)
}

const scalar = z.union([z.string(), z.number(), z.boolean()])
const keys = z.record(z.string(), scalar)
const entry = z.strictObject({
  at: z.tuple([z.enum(['spec', 'status'])], z.union([z.string(), keys])),
  base: z.unknown().optional(),
  value: z.unknown().optional(),
  items: z
    .array(z.union([z.tuple([z.array(z.unknown())]), z.tuple([z.array(z.unknown()).min(1), z.unknown()])]))
    .optional(),
  order: z.tuple([z.array(keys), z.array(keys)]).optional(),
})
const annotation = z.array(z.tuple([z.string(), z.array(entry)]))

/** Reads the annotation: what is kept for each version. Throws an Error for a text of another form. */
export function readKept(text: string | undefined): Map<string, Kept[]> {
  try {
    return new Map(annotation.parse(JSON.parse(text ?? '[]')) as [string, Kept[]][])
  } catch (cause) {
    throw new Error('its annotation fairlead.dev/kept is damaged: what it keeps would be lost', { cause })
  }
}

/** Returns the annotation; undefined if nothing is kept. */
export function writeKept(kept: ReadonlyMap<string, readonly Kept[]>): string | undefined {
  const lists = [...kept].filter(([, list]) => list.length > 0)
  return lists.length === 0 ? undefined : JSON.stringify(lists.sort(([one], [other]) => (one < other ? -1 : 1)))
}
