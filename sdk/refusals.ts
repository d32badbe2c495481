import { z } from 'zod'
import { explain } from './explain.ts'
import { COPIED, type JsonSchema } from './json-schema.ts'

/**
 * Throws the error for a schema that a CustomResourceDefinition cannot express. All such errors name the path, the
 * cause and the fix.
 */
export function refuse(path: string, what: string, instead: string): never {
  throw new Error(`${path} ${what}, which a CustomResourceDefinition cannot express: ${instead}`)
}

const KNOWN = new Set([...COPIED, 'properties', 'additionalProperties', 'items', 'allOf', 'anyOf', 'oneOf'])
/** Annotations for readers that JSONSchemaProps has no field for. The CustomResourceDefinition leaves them out. */
const NOTES = new Set(['readOnly', 'examples', 'deprecated', 'contentEncoding', 'definitions'])

export function refuseKeywords(json: JsonSchema, path: string): void {
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
export function refuseLossOf(schema: z.core.$ZodTypes, json: JsonSchema, path: string): void {
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
