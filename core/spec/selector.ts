import type { KubeObject } from '#contracts'

export type Labels = Readonly<Record<string, string>>
export type LabelSelector = (labels: Labels) => boolean

/** Thrown for a text that is not a label selector of the Kubernetes API. */
export class SelectorError extends Error {
  override readonly name = 'SelectorError'
}

const KEY = '([A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)'
const VALUE = '((?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?)'
const EQUALS = new RegExp(`^${KEY}\\s*(==|=|!=)\\s*${VALUE}$`)
const SET = new RegExp(`^${KEY}\\s+(in|notin)\\s*\\(([^()]*)\\)$`)
const EXISTS = new RegExp(`^(!?)\\s*${KEY}$`)

/** Returns the selector as a predicate, with the API server's meaning: `!=` and `notin` hold if the label is absent. */
export function parseSelector(text: string): LabelSelector {
  if (text.trim() === '') return () => true
  const requirements = splitOutsideParentheses(text).map(parseRequirement)
  return (labels) => requirements.every((holds) => holds(labels))
}

/** Returns lists of `key=value`. An object that matches the selector has one label of each list. */
export const labelsOfSelector = (text: string): string[][] =>
  splitOutsideParentheses(text).flatMap((requirement) => {
    const [, key, operator = '!=', value = ''] = EQUALS.exec(requirement) ?? []
    if (operator !== '!=') return [[`${key}=${value}`]]
    const [, setKey, setOperator, list = ''] = SET.exec(requirement) ?? []
    return setOperator === 'in' ? [[...new Set(list.split(',').map((one) => `${setKey}=${one.trim()}`))]] : []
  })

function parseRequirement(text: string): LabelSelector {
  const equals = EQUALS.exec(text)
  if (equals) {
    const [, key = '', operator, value = ''] = equals
    return operator === '!=' ? (labels) => labels[key] !== value : (labels) => labels[key] === value
  }
  const set = SET.exec(text)
  if (set) {
    const [, key = '', operator, list = ''] = set
    const values = new Set(list.split(',').map((value) => value.trim()))
    return (labels) => isOneOf(labels[key], values) === (operator === 'in')
  }
  const exists = EXISTS.exec(text)
  if (exists) {
    const [, not, key = ''] = exists
    return (labels) => Object.hasOwn(labels, key) === (not === '')
  }
  throw new SelectorError(
    `${JSON.stringify(text)} is not a label requirement: write key=value, key!=value, key in (a, b), key notin (a, b), key or !key`,
  )
}

const isOneOf = (value: string | undefined, values: ReadonlySet<string>): boolean =>
  value !== undefined && values.has(value)

const splitOutsideParentheses = (text: string): string[] => text.split(/,(?![^(]*\))/).map((part) => part.trim())

export type ObjectSelector = (object: KubeObject) => boolean

const TERM = /^([^!=]+?)\s*(==|=|!=)\s*(.*)$/

/**
 * Returns the selector as a predicate. The API server decides which fields of a kind a selector may use, and refuses
 * others. All of these fields, except `source` of Events, are paths in the object. A missing field counts as the empty
 * string, and so does a field that has no single value; the API server supports no such field.
 */
export function parseFieldSelector(text: string): ObjectSelector {
  if (text.trim() === '') return () => true
  const requirements = text.split(',').map((term) => parseTerm(term.trim()))
  return (object) => requirements.every((holds) => holds(object))
}

function parseTerm(text: string): ObjectSelector {
  const [, path = '', operator, wanted = ''] = TERM.exec(text) ?? []
  if (!FIELD_PATH.test(path))
    throw new SelectorError(`${JSON.stringify(text)} is not a field requirement: write field=value or field!=value`)
  return (object) => (textAt(object, path) === wanted) === (operator !== '!=')
}

function textAt(object: KubeObject, path: string): string {
  const [value = ''] = valuesAt(object, path)
  if (typeof value === 'object') return ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}

const STEP = String.raw`[A-Za-z0-9_-]+|\['[^']+'\]|\[\*\]`
/**
 * The form of a path: `spec.configMapName`, `spec.volumes[*].configMap.name`,
 * `metadata.annotations['example.com/config']`.
 */
export const FIELD_PATH = new RegExp(String.raw`^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\['[^']+'\]|\[\*\])*$`)

/** Returns every value at a path of the form FIELD_PATH, and an empty list if a step is missing. */
export function valuesAt(object: object, path: string): unknown[] {
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
