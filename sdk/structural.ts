import { z } from 'zod'
import { explain } from './options.ts'
import { COPIED, type JsonSchema, PRESERVE, RULES, refuseRules, type StructuralSchema } from './rules.ts'

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

/**
 * Throws the error for a schema that a CustomResourceDefinition cannot express. All such errors name the path, the
 * cause and the fix.
 */
function refuse(path: string, what: string, instead: string): never {
  throw new Error(`${path} ${what}, which a CustomResourceDefinition cannot express: ${instead}`)
}

const KNOWN = new Set([...COPIED, 'properties', 'additionalProperties', 'items', 'allOf', 'anyOf', 'oneOf'])
/** Annotations for readers that JSONSchemaProps has no field for. The CustomResourceDefinition leaves them out. */
const NOTES = new Set(['readOnly', 'examples', 'deprecated', 'contentEncoding', 'definitions'])

function refuseKeywords(json: JsonSchema, path: string): void {
  if ('$ref' in json) refuse(path, 'is recursive or has an id', 'write the shape out, without .meta({ id })')
  if ('not' in json || json.enum?.includes(null) === true)
    refuse(path, 'accepts nothing, or null alone', 'leave the field out')
  // Kubernetes 1.36 refuses null wherever there is an enum, even one that lists it.
  if (json.nullable === true && json.enum !== undefined) refuse(path, 'has null beside an enum', 'make it optional')
  const unknown = Object.keys(json).find(
    (key) => !KNOWN.has(key) && !NOTES.has(key) && !key.startsWith('x-kubernetes-'),
  )
  if (unknown !== undefined) refuse(path, `has the keyword "${unknown}"`, 'remove it from .meta()')
}

/** Throws for a pattern that RE2 cannot compile: the API server uses RE2. */
export function refusePattern(pattern: string | undefined, path: string): void {
  if (pattern === undefined) return
  const withoutEscapedBackslashes = pattern.replaceAll('\\\\', '')
  if (/\(\?(?:[=!]|<[=!])/.test(withoutEscapedBackslashes))
    refuse(path, `looks around in its pattern /${pattern}/`, 'split it into several patterns')
  if (/\\(?:[1-9]|k<|u)/.test(withoutEscapedBackslashes))
    refuse(path, `refers back or escapes \\u in its pattern /${pattern}/`, 'write it out')
}

/** Types of zod whose values JSON does not have; JSON Schema would admit any value for them. */
const FORMLESS = new Set([
  'bigint',
  'custom',
  'date',
  'file',
  'function',
  'map',
  'nan',
  'promise',
  'set',
  'symbol',
  'undefined',
  'void',
])

/**
 * Throws for parts of a schema that JSON Schema drops silently: the API server would admit values that the function
 * rejects.
 */
function refuseLossOf(schema: z.core.$ZodTypes, json: JsonSchema, path: string): void {
  const { def } = schema._zod
  if (def.type === 'tuple') refuse(path, 'is a tuple', 'use an array, or an object with named fields')
  if (def.type === 'record') refuseKeys(def.keyType, path)
  if (def.type === 'string') refuseFlags(def.checks ?? [], path)
  if ((def.type === 'default' || def.type === 'prefault') && 'default' in json) refuseDefault(def, path)
  if (Object.keys(json).length === 0 && FORMLESS.has(def.type))
    refuse(path, `is a ${def.type}, without a form in JSON`, 'use a string or a number')
}

type Defaulted = Pick<z.core.$ZodDefaultDef, 'innerType' | 'defaultValue'>

/** Throws for a default that violates its schema. The API server rejects it; zod does not check it. */
function refuseDefault({ innerType, defaultValue }: Defaulted, path: string): void {
  const { error } = z.safeParse(innerType, defaultValue)
  if (error !== undefined) throw new Error(`the default of ${path} is wrong: ${explain(error, defaultValue, path)}`)
}

function refuseKeys(keys: z.core.$ZodType, path: string): void {
  const { type, checks = [] } = keys._zod.def
  if (type !== 'string' || checks.length > 0 || 'format' in keys._zod.def)
    refuse(path, 'limits the keys of a record', 'use z.string() for the keys and a CEL rule')
}

function refuseFlags(checks: readonly z.core.$ZodCheck[], path: string): void {
  for (const { _zod } of checks) {
    const { pattern } = _zod.def as { pattern?: RegExp }
    if (pattern !== undefined && /[imsy]/.test(pattern.flags))
      refuse(path, `has flags on its pattern ${String(pattern)}`, 'write the pattern so that it needs none')
  }
}
