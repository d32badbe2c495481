import type { z } from 'zod'

type Path = readonly PropertyKey[]

const MOST_ISSUES = 5
const LONGEST_VALUE = 120

/**
 * Returns the errors of a value for its author: `spec.size is "three": expected number, received string`. `where` is
 * the path of the value.
 */
export function explain({ issues }: z.ZodError, value: unknown, where = ''): string {
  const shown = issues.slice(0, MOST_ISSUES).map((issue) => explainIssue(issue, value, where))
  return issues.length > MOST_ISSUES ? `${shown.join('; ')}; and more` : shown.join('; ')
}

function explainIssue({ path, message }: z.core.$ZodIssue, root: unknown, where: string): string {
  const value = valueAt(root, path)
  const found = value === undefined ? 'is missing' : `is ${show(value)}`
  return `${pathText(path, where)} ${found}: ${message.replace(/^Invalid input: /, '')}`
}

const valueAt = (root: unknown, path: Path): unknown =>
  path.reduce<unknown>((value, key) => (value as Record<PropertyKey, unknown> | null | undefined)?.[key], root)

/** `spec.items[0].name`. A name that is not a plain word is quoted: `metadata.labels["a.b/c"]`. */
function pathText(path: Path, where: string): string {
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
