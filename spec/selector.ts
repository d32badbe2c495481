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
