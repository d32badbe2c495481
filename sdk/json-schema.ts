/** Keywords that have the same meaning in JSON Schema and in JSONSchemaProps. */
export const COPIED = [
  'description',
  'title',
  'type',
  'format',
  'nullable',
  'default',
  'enum',
  'pattern',
  'minLength',
  'maxLength',
  'minimum',
  'exclusiveMinimum',
  'maximum',
  'exclusiveMaximum',
  'multipleOf',
  'minItems',
  'maxItems',
  'required',
]

/** A schema as zod makes it for OpenAPI 3.0, with the keywords that .meta() adds. */
export interface JsonSchema {
  type?: string
  format?: string
  nullable?: boolean
  enum?: unknown[]
  pattern?: string
  minimum?: number
  maximum?: number
  properties?: Record<string, JsonSchema>
  additionalProperties?: JsonSchema | false
  items?: JsonSchema
  allOf?: JsonSchema[]
  anyOf?: JsonSchema[]
  oneOf?: JsonSchema[]
  [keyword: string]: unknown
}

/** The part of JSONSchemaProps (apiextensions.k8s.io/v1) that a structural schema may use. */
export interface StructuralSchema {
  type?: string
  required?: string[]
  properties?: Record<string, StructuralSchema>
  additionalProperties?: StructuralSchema
  items?: StructuralSchema
  [keyword: string]: unknown
}
