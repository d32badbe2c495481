import { isDeepStrictEqual } from 'node:util'
import type { StructuralSchema } from './json-schema.ts'
import { RULES, usesOldSelf, type ValidationRule } from './rules.ts'

const PRESERVE = 'x-kubernetes-preserve-unknown-fields'
const INT_OR_STRING = 'x-kubernetes-int-or-string'

/** Like breakingChanges() in compatibility.ts, for two schemas. */
export function changesOf(before: StructuralSchema, after: StructuralSchema, path: string): string[] {
  const at = path === '' ? 'the object' : path.slice(1)
  if (after[PRESERVE] === true && after.type === undefined && after[INT_OR_STRING] !== true) return []
  const found: string[] = []
  const say = (what: string): void => void found.push(`${at} ${what}`)
  if (typeOf(before) !== typeOf(after)) return [`${at} was ${typeOf(before)}, and would be ${typeOf(after)}`]
  if (before['nullable'] === true && after['nullable'] !== true) say('could be null')
  if (before[PRESERVE] === true && after[PRESERVE] !== true) say('could hold any field: unknown ones would be lost')
  for (const [keyword, isTighter] of BOUNDS)
    if (isTighter(before[keyword], after[keyword]))
      say(`would have ${keyword} ${JSON.stringify(after[keyword])}${wasOf(before[keyword])}`)
  for (const value of enumOf(after) === undefined ? [] : (enumOf(before) ?? ['any other']))
    if (!enumOf(after)?.includes(value)) say(`would not take ${JSON.stringify(value)}`)
  for (const rule of newRules(before, after)) say(`would have to hold the rule ${rule}`)
  return [...found, ...fieldChanges(before, after, path), ...elementChanges(before, after, path)]
}

const typeOf = (schema: StructuralSchema): string =>
  schema[INT_OR_STRING] === true ? 'int-or-string' : (schema.type ?? 'anything')

const wasOf = (before: unknown): string => (before === undefined ? '' : ` instead of ${JSON.stringify(before)}`)

const enumOf = (schema: StructuralSchema): unknown[] | undefined => schema['enum'] as unknown[] | undefined

type Tighter = (before: unknown, after: unknown) => boolean

const higher: Tighter = (before, after) => after !== undefined && Number(after) > Number(before ?? -Infinity)
const lower: Tighter = (before, after) => after !== undefined && Number(after) < Number(before ?? Infinity)
const other: Tighter = (before, after) => after !== undefined && !isDeepStrictEqual(before, after)

const BOUNDS: [keyword: string, isTighter: Tighter][] = [
  ['minimum', higher],
  ['minLength', higher],
  ['minItems', higher],
  ['maximum', lower],
  ['maxLength', lower],
  ['maxItems', lower],
  ['exclusiveMinimum', other],
  ['exclusiveMaximum', other],
  ['multipleOf', other],
  ['pattern', other],
  ['allOf', other],
  ['format', (before, after) => other(before, after) && !(before === 'int32' && after === 'int64')],
  ['x-kubernetes-list-type', other],
  ['x-kubernetes-list-map-keys', other],
]

/** New rules that stored objects could violate. Rules with `oldSelf` do not count: they apply to updates only. */
function newRules(before: StructuralSchema, after: StructuralSchema): string[] {
  const rulesOf = (schema: StructuralSchema) => (schema[RULES] ?? []) as ValidationRule[]
  const known = rulesOf(before).map(({ rule }) => rule)
  const added = rulesOf(after).filter((one) => !known.includes(one.rule) && !usesOldSelf(one))
  return added.map(({ rule }) => rule)
}

function fieldChanges(before: StructuralSchema, after: StructuralSchema, path: string): string[] {
  const required = (after.required ?? []).filter((name) => !before.required?.includes(name))
  const missing = required
    .filter((name) => after.properties?.[name]?.['default'] === undefined)
    .map((name) => `${`${path}.${name}`.slice(1)} would be required`)
  const fields = Object.entries(before.properties ?? {}).flatMap(([name, field]) => {
    const next = after.properties?.[name] ?? after.additionalProperties
    const here = `${path}.${name}`
    if (next !== undefined) return changesOf(field, next, here)
    const isKept = after[PRESERVE] === true || here === '.metadata' || here.startsWith('.status.')
    return isKept ? [] : [`${here.slice(1)} does not exist any more: stored values would be lost`]
  })
  return [...missing, ...fields]
}

function elementChanges(before: StructuralSchema, after: StructuralSchema, path: string): string[] {
  const items = before.items && after.items ? changesOf(before.items, after.items, `${path}[]`) : []
  const { additionalProperties: values } = before
  if (values === undefined) return items
  if (after.additionalProperties !== undefined)
    return [...items, ...changesOf(values, after.additionalProperties, `${path}.*`)]
  return after[PRESERVE] === true ? items : [...items, `${path.slice(1)} had keys of any name: they would be lost`]
}
