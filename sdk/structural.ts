import { z } from 'zod'
import { COPIED, type JsonSchema, type StructuralSchema } from './json-schema.ts'
import { refuse, refuseKeywords, refuseLossOf, refusePattern } from './refusals.ts'
import { RULES, refuseRules } from './rules.ts'

const PRESERVE = 'x-kubernetes-preserve-unknown-fields'
const INT_OR_STRING = 'x-kubernetes-int-or-string'

/**
 * Returns the structural schema of the values that users may write: a field with a default is optional. Throws an Error
 * with the path for a schema that a CustomResourceDefinition cannot express. Checks in code (`refine`) are left out,
 * since parse() makes them.
 */
export function toStructural(schema: z.ZodType, path: string): StructuralSchema {
  const json = z.toJSONSchema(schema, {
    target: 'openapi-3.0',
    io: 'input',
    reused: 'inline',
    cycles: 'ref',
    unrepresentable: 'any',
    override: ({ zodSchema, jsonSchema, path: at }) =>
      refuseLossOf(zodSchema, jsonSchema as JsonSchema, path + authorsPath(at)),
  })
  return structural(json as JsonSchema, path)
}

function structural(raw: JsonSchema, path: string): StructuralSchema {
  refuseKeywords(raw, path)
  const json = withFormat(raw)
  refusePattern(json.pattern, path)
  const extensions = Object.keys(json).filter((keyword) => keyword.startsWith('x-kubernetes-'))
  const own = pick(json, [...COPIED, ...extensions])
  const schema = { ...own, ...alternatives(json, path), ...fields(json, path), ...elements(json, path) }
  if (RULES in json) refuseRules(json[RULES], `${path}.${RULES}`, schema)
  return typed(schema, path)
}

function typed(schema: StructuralSchema, path: string): StructuralSchema {
  if (schema.type === undefined && schema[PRESERVE] !== true && schema[INT_OR_STRING] !== true)
    refuse(path, 'has no single type', `give it one, or .meta({ '${PRESERVE}': true })`)
  return schema
}

function alternatives({ anyOf, oneOf, allOf }: JsonSchema, path: string): StructuralSchema {
  if (allOf !== undefined) return { allOf: allOf.map((part) => patternOnly(part, path)) }
  if (isIntOrString(anyOf)) return { [INT_OR_STRING]: true }
  if (anyOf !== undefined || oneOf !== undefined)
    refuse(path, 'is a union', 'make its members optional fields, with a CEL rule for which may be set')
  return {}
}

/** Several patterns of one string become `allOf`, in which a structural schema may not repeat the type. */
function patternOnly({ type, pattern }: JsonSchema, path: string): StructuralSchema {
  if (type !== 'string' || pattern === undefined) refuse(path, 'is an intersection', 'merge it into one object')
  refusePattern(pattern, path)
  return { pattern }
}

function fields({ properties, additionalProperties: others }: JsonSchema, path: string): StructuralSchema {
  const named = Object.entries(properties ?? {})
  const own =
    properties === undefined
      ? {}
      : { properties: Object.fromEntries(named.map(([name, field]) => [name, structural(field, `${path}.${name}`)])) }
  if (others === undefined || others === false) return own
  if (isEmpty(others)) return { ...own, [PRESERVE]: true }
  if (named.length > 0) refuse(path, 'types its unnamed fields', 'move them into a record of their own')
  return { additionalProperties: structural(others, `${path}.*`) }
}

const elements = ({ items }: JsonSchema, path: string): StructuralSchema =>
  items === undefined ? {} : { items: structural(items, `${path}[]`) }

/** Formats that have the same meaning in zod and in the API server. Other formats become their pattern. */
const SHARED_FORMATS = ['email', 'uri', 'uuid', 'ipv4', 'ipv6']

function withFormat(json: JsonSchema): JsonSchema {
  if (json.type === 'integer') return integer(json)
  if (json.type === 'number') return withoutBounds(json, -Number.MAX_VALUE, Number.MAX_VALUE)
  if (json.format === 'date-time' || json.format === 'date') return without(json, 'pattern')
  return SHARED_FORMATS.includes(json.format ?? '') ? json : without(json, 'format')
}

const INT32 = { min: -(2 ** 31), max: 2 ** 31 - 1 }

function integer(json: JsonSchema): JsonSchema {
  const { minimum = -Infinity, maximum = Infinity } = json
  return minimum >= INT32.min && maximum <= INT32.max
    ? { ...withoutBounds(json, INT32.min, INT32.max), format: 'int32' }
    : { ...withoutBounds(json, Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER), format: 'int64' }
}

/** Removes bounds that the type implies. */
function withoutBounds(json: JsonSchema, min: number, max: number): JsonSchema {
  const bounded = json.minimum === min ? without(json, 'minimum') : json
  return json.maximum === max ? without(bounded, 'maximum') : bounded
}

function isIntOrString(anyOf: JsonSchema[] = []): boolean {
  const options = anyOf.map(withFormat)
  const isBare = options.every((option) => Object.keys(option).every((key) => key === 'type' || key === 'format'))
  const types = options.map(({ type }) => type)
  return isBare && types.length === 2 && types.includes('integer') && types.includes('string')
}

/** Converts a path of a JSON schema, such as `/properties/spec/items`, to the author's path: `.spec[]`. */
function authorsPath(at: readonly (string | number)[]): string {
  const [keyword, name, ...rest] = at
  if (keyword === undefined) return ''
  if (keyword === 'properties') return `.${name}${authorsPath(rest)}`
  if (keyword === 'items') return `[]${authorsPath(at.slice(1))}`
  if (keyword === 'additionalProperties') return `.*${authorsPath(at.slice(1))}`
  return authorsPath(at.slice(1))
}

const isEmpty = (schema: JsonSchema): boolean => Object.keys(schema).length === 0

const pick = (from: JsonSchema, keys: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(keys.filter((key) => from[key] !== undefined).map((key) => [key, from[key]]))

const without = (from: JsonSchema, keyword: string): JsonSchema =>
  Object.fromEntries(Object.entries(from).filter(([key]) => key !== keyword))
