import * as fc from 'fast-check'

/** The part of an OpenAPI schema that the generated definitions use. */
export interface Schema {
  type?: string
  enum?: string[]
  pattern?: string
  minLength?: number
  maxLength?: number
  minimum?: number
  maximum?: number
  minItems?: number
  maxItems?: number
  required?: string[]
  properties?: Record<string, Schema>
  items?: Schema
}

/** The usual limit of lengths: longer texts and lists test nothing more, except the longest admitted text. */
const USUAL_LENGTH = 12
const MOST_ITEMS = 3

/**
 * Any value that a schema admits. `likely` proposes texts for a path such as `for.resource`: those that the schema admits
 * come in half of the cases, so that not everything is about things that do not exist.
 */
export function admittedBy(
  schema: Schema,
  likely: (path: string) => readonly string[] = () => [],
  path = '',
): fc.Arbitrary<unknown> {
  const below = (part: Schema, name: string) => admittedBy(part, likely, path === '' ? name : `${path}.${name}`)
  switch (schema.type ?? 'string') {
    case 'object': {
      const fields = Object.entries(schema.properties ?? {})
      return fc.record(Object.fromEntries(fields.map(([name, part]) => [name, below(part, name)])), {
        requiredKeys: schema.required ?? [],
      })
    }
    case 'array':
      return fc.array(admittedBy(schema.items ?? {}, likely, path), {
        minLength: schema.minItems ?? 0,
        maxLength: Math.min(schema.maxItems ?? MOST_ITEMS, MOST_ITEMS),
      })
    case 'boolean':
      return fc.boolean()
    case 'integer':
      return fc.integer({ min: schema.minimum ?? -(2 ** 31), max: schema.maximum ?? 2 ** 31 - 1 })
    case 'number':
      return fc.double({ min: schema.minimum ?? -1e9, max: schema.maximum ?? 1e9, noNaN: true })
    default:
      return textOf(schema, likely(path))
  }
}

function textOf(schema: Schema, likely: readonly string[]): fc.Arbitrary<string> {
  if (schema.enum) return fc.constantFrom(...schema.enum)
  const { pattern, minLength = 0, maxLength = USUAL_LENGTH } = schema
  const isAdmitted = (text: string) =>
    text.length >= minLength && text.length <= maxLength && (pattern === undefined || new RegExp(pattern).test(text))
  const longest = ['a'.repeat(maxLength), `/${'b'.repeat(USUAL_LENGTH)}`, '..', 'é%00', ' ']
  const any =
    pattern === undefined
      ? fc.string({ minLength, maxLength: Math.min(maxLength, USUAL_LENGTH), unit: 'binary' })
      : fc.stringMatching(new RegExp(pattern), { size: '-1' }).filter(isAdmitted)
  const proposed = (texts: readonly string[]) => texts.filter(isAdmitted).map((text) => fc.constant(text))
  return fc.oneof({ arbitrary: any, weight: 2 }, ...weighted(proposed(likely), 4), ...weighted(proposed(longest), 1))
}

const weighted = (arbitraries: fc.Arbitrary<string>[], weight: number) =>
  arbitraries.length === 0 ? [] : [{ arbitrary: fc.oneof(...arbitraries), weight }]
