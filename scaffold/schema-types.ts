/** An OpenAPI v3 schema of a CustomResourceDefinition. */
export interface Schema {
  type?: string
  description?: string
  properties?: Record<string, Schema>
  additionalProperties?: Schema | boolean
  required?: string[]
  items?: Schema
  enum?: unknown[]
  minimum?: number
  default?: unknown
  nullable?: boolean
  'x-kubernetes-int-or-string'?: boolean
  'x-kubernetes-preserve-unknown-fields'?: boolean
}

/** Returns the TypeScript type of the values that a schema admits. `indent` is the indentation of its line. */
export function typeOf(schema: Schema, indent = ''): string {
  const type = plainType(schema, indent)
  return schema.nullable === true ? `${type} | null` : type
}

function plainType(schema: Schema, indent: string): string {
  if (schema['x-kubernetes-int-or-string'] === true) return 'number | string'
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(' | ')
  const { type = '' } = schema
  switch (type) {
    case 'string':
    case 'boolean':
      return type
    case 'integer':
    case 'number':
      return 'number'
    case 'array':
      return arrayOf(typeOf(schema.items ?? {}, indent))
    case 'object':
      return objectType(schema, indent)
    default:
      return 'unknown'
  }
}

const arrayOf = (item: string): string => (item.includes(' | ') && !item.startsWith('{') ? `(${item})[]` : `${item}[]`)

function objectType({ properties, additionalProperties, required = [] }: Schema, indent: string): string {
  if (properties === undefined) {
    const values = typeof additionalProperties === 'object' ? typeOf(additionalProperties, indent) : 'unknown'
    return `Record<string, ${values}>`
  }
  const fields = Object.entries(properties).flatMap(([name, schema]) => {
    const key = /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)
    // The API server fills in defaults, so the function always reads a field with a default.
    const isThere = required.includes(name) || schema.default !== undefined
    return [
      ...comment(schema, `${indent}  `),
      `${indent}  ${key}${isThere ? '' : '?'}: ${typeOf(schema, `${indent}  `)}`,
    ]
  })
  return fields.length === 0 ? 'Record<string, never>' : `{\n${fields.join('\n')}\n${indent}}`
}

const comment = ({ description }: Schema, indent: string): string[] =>
  description === undefined
    ? []
    : [`${indent}/** ${description.replaceAll('*/', '* /').replaceAll(/\s+/g, ' ').trim()} */`]

/** Returns an example value with the required fields and the defaults. A pattern may still reject it. */
export function sampleOf(schema: Schema): unknown {
  if (schema.default !== undefined) return schema.default
  if (schema.enum !== undefined) return schema.enum[0]
  switch (schema.type ?? '') {
    case 'string':
      return 'text'
    case 'boolean':
      return true
    case 'integer':
    case 'number':
      return schema.minimum ?? 1
    case 'array':
      return []
    default:
      return sampleObject(schema)
  }
}

function sampleObject({ properties = {}, required = [] }: Schema): object {
  const named = Object.entries(properties).filter(([name, one]) => required.includes(name) || one.default !== undefined)
  return Object.fromEntries(named.map(([name, one]) => [name, sampleOf(one)]))
}
