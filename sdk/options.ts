import type { z } from 'zod'

/** The compiler checks that the list has every key of the type. */
export const keysOf = <T>(keys: Record<keyof T, true>): readonly string[] => Object.keys(keys)

/**
 * Throws an Error for an unknown option, and suggests the most similar known one. Without it, a misspelled option would
 * have no effect.
 */
export function refuseUnknown(given: object, known: readonly string[], whose: string): void {
  const unknown = Object.keys(given).find((name) => !known.includes(name))
  if (unknown === undefined) return
  const [nearest = ''] = known.toSorted((one, other) => distance(unknown, one) - distance(unknown, other))
  const isNear = distance(unknown, nearest) <= Math.max(2, unknown.length / 3)
  throw new Error(
    `${whose} has an unknown option "${unknown}": ${isNear ? `did you mean "${nearest}"?` : `it takes ${known.join(', ')}`}`,
  )
}

/** The Levenshtein distance: the number of characters to insert, delete or replace. */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (const [above, letter] of from.split('').entries()) {
    const next = [above + 1]
    for (const [index, other] of to.split('').entries())
      next.push(
        Math.min((row[index] ?? 0) + (letter === other ? 0 : 1), (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1),
      )
    row = next
  }
  return row[to.length] ?? 0
}

type Path = readonly PropertyKey[]

const MOST_ISSUES = 5
const LONGEST_VALUE = 120

/**
 * Returns the errors of a value for its author: `spec.size is "three": expected number, received string`. `where` is
 * the path of the value.
 */
export function explain(error: z.ZodError, value: unknown, where = ''): string {
  const issues = issuesOf(error, value, where)
  const shown = issues.slice(0, MOST_ISSUES).map(({ path, message }) => `${path} ${message}`)
  return issues.length > MOST_ISSUES ? `${shown.join('; ')}; and more` : shown.join('; ')
}

/** Returns each error of a value: `spec.size`, `is "three": expected number, received string`. */
export const issuesOf = ({ issues }: z.ZodError, root: unknown, where: string): { path: string; message: string }[] =>
  issues.map(({ path, message }) => {
    const value = valueAt(root, path)
    const found = value === undefined ? 'is missing' : `is ${show(value)}`
    return { path: pathText(path, where), message: `${found}: ${message.replace(/^Invalid input: /, '')}` }
  })

export const valueAt = (root: unknown, path: Path): unknown =>
  path.reduce<unknown>((value, key) => (value as Record<PropertyKey, unknown> | null | undefined)?.[key], root)

/** `spec.items[0].name`. A name that is not a plain word is quoted: `metadata.labels["a.b/c"]`. */
export function pathText(path: Path, where: string): string {
  const steps = path.map((key) => {
    if (typeof key === 'number') return `[${key}]`
    return /^[\w-]+$/.test(String(key)) ? `.${String(key)}` : `[${JSON.stringify(String(key))}]`
  })
  const text = steps.join('')
  return where === '' ? text.replace(/^\./, '') || 'the value' : where + text
}

/** Shows objects and arrays without their contents: the value may be a Secret, and the message is stored and shown. */
function show(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? '[]' : '[…]'
  if (typeof value === 'object' && value !== null && !(value instanceof Date))
    return Object.keys(value).length === 0 ? '{}' : '{…}'
  const isAsItReads = typeof value === 'number' || typeof value === 'bigint' || value instanceof Date
  const text = isAsItReads ? `${value}` : (JSON.stringify(value) ?? `a ${typeof value}`)
  return text.length > LONGEST_VALUE ? `${text.slice(0, LONGEST_VALUE)}…` : text
}

/**
 * Returns a copy as the receiver of the JSON gets it: dates as RFC 3339, fields that are undefined left out. Throws an
 * Error with the path for a value that JSON cannot hold.
 */
export function plain(value: unknown, path: string): unknown {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value
  // JSON has no -0.
  if (typeof value === 'number') return Number.isFinite(value) ? value + 0 : refuse(path, `is ${value}`)
  return typeof value === 'object'
    ? plainObject(value, path)
    : refuse(path, value === undefined ? 'is undefined' : `is a ${typeof value}`)
}

function plainObject(value: object, path: string): unknown {
  if (Array.isArray(value)) return value.map((item, index) => plain(item, `${path}[${index}]`))
  if (value instanceof Date)
    return Number.isNaN(value.getTime()) ? refuse(path, 'is an invalid Date') : value.toISOString()
  if (!isRecord(value)) refuse(path, `is a ${value.constructor.name}`)
  const fields = Object.entries(value).filter(([, field]) => field !== undefined)
  return Object.fromEntries(fields.map(([name, field]) => [name, plain(field, `${path}.${name}`)]))
}

/** True for an object literal, of this realm or another one. */
function isRecord(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

function refuse(path: string, what: string): never {
  throw new TypeError(`${path} ${what}, which is not JSON`)
}
