import { z } from 'zod'
import { explain, keysOf, refuseUnknown } from './options.ts'

/**
 * A rule in CEL that the API server checks at each write: an entry of x-kubernetes-validations.
 *
 * @example
 * import { resource, type ValidationRule, z } from 'fairlead'
 * const grows: ValidationRule = { rule: 'self.spec.size >= oldSelf.spec.size', message: 'spec.size cannot shrink' }
 * const Disk = resource({
 *   group: 'example.com', version: 'v1', kind: 'Disk', plural: 'disks', validations: [grows],
 *   spec: z.object({ size: z.int32() }), status: z.object({}),
 * })
 * Disk.crd().spec.versions[0]?.schema.openAPIV3Schema['x-kubernetes-validations'] // => [grows]
 */
export interface ValidationRule {
  /**
   * `self` is the value that has the rule, `oldSelf` its value before an update. A rule with `oldSelf` applies to
   * updates only.
   */
  rule: string
  /** The message of kubectl when the rule does not hold. One line. */
  message?: string
  /** A CEL expression for a message with values; `message` is shown if its evaluation fails. */
  messageExpression?: string
  /** @default 'FieldValueInvalid' */
  reason?: (typeof REASONS)[number]
  /** The field that kubectl names, relative to the value that has the rule: `.spec.size`. */
  fieldPath?: string
  /** The rule applies to creation too. `oldSelf` is then an optional value: `oldSelf.hasValue()`. */
  optionalOldSelf?: boolean
}

export const RULES = 'x-kubernetes-validations'
export const PRESERVE = 'x-kubernetes-preserve-unknown-fields'

const REASONS = ['FieldValueInvalid', 'FieldValueForbidden', 'FieldValueRequired', 'FieldValueDuplicate'] as const

export const RULE_OPTIONS = keysOf<ValidationRule>({
  rule: true,
  message: true,
  messageExpression: true,
  reason: true,
  fieldPath: true,
  optionalOldSelf: true,
})

const text = z.string().regex(/\S/, 'give it a text')
const FIELD = String.raw`\.[^.[\]']+|\['[^']+'\]`

const ruleSchema = z
  .object({
    rule: z.string().regex(/\S/, 'write an expression in CEL'),
    message: text.regex(/^.*$/, 'write it in one line').optional(),
    messageExpression: text.optional(),
    reason: z.enum(REASONS).optional(),
    fieldPath: z
      .string()
      .regex(new RegExp(`^(?:${FIELD})+$`), "write .spec.size, or .spec['a-b']")
      .optional(),
    optionalOldSelf: z.boolean().optional(),
  })
  .refine(({ rule, message }) => message !== undefined || !rule.trim().includes('\n'), {
    path: ['message'],
    message: 'a rule of several lines needs one',
  })
  .refine(({ rule, optionalOldSelf }) => optionalOldSelf === undefined || usesOldSelf({ rule }), {
    path: ['optionalOldSelf'],
    message: 'only for a rule with oldSelf',
  })

export const usesOldSelf = ({ rule }: Pick<ValidationRule, 'rule'>): boolean => /\boldSelf\b/.test(withoutTexts(rule))

/**
 * Throws an Error for rules that the API server would reject for other reasons than their CEL. `where`: the path of the
 * list.
 */
export function refuseRules(rules: unknown, where: string, schema: StructuralSchema): void {
  refuseFieldPaths(checked(rules, where), where, schema)
}

/** Returns the schema of an object with rules on the whole object. Throws as refuseRules() does. */
export function withObjectRules(schema: StructuralSchema, rules: readonly ValidationRule[]): StructuralSchema {
  const where = 'validations'
  const list = checked(rules, where)
  for (const [index, { rule }] of list.entries()) refuseMetadata(rule, `${where}[${index}].rule`)
  const isNamed = list.some(({ fieldPath }) => fieldPath?.startsWith('.metadata'))
  const named = isNamed ? { ...schema, properties: { metadata: NAMED, ...schema.properties } } : schema
  refuseFieldPaths(list, where, named)
  return { ...named, [RULES]: rules }
}

/** The fields of metadata that a fieldPath may name: the API server accepts only fields of the schema. */
const NAMED: StructuralSchema = {
  type: 'object',
  properties: { name: { type: 'string' }, generateName: { type: 'string' } },
}

function checked(rules: unknown, where: string): ValidationRule[] {
  const { success, data, error } = z.array(ruleSchema).safeParse(rules)
  if (!success) throw new Error(explain(error, rules, where), { cause: error })
  for (const [index, one] of (rules as object[]).entries()) refuseUnknown(one, RULE_OPTIONS, `${where}[${index}]`)
  return data
}

function refuseFieldPaths(rules: readonly ValidationRule[], where: string, schema: StructuralSchema): void {
  for (const [index, { fieldPath = '' }] of rules.entries())
    if (!hasField(schema, fieldPath))
      throw new Error(`${where}[${index}].fieldPath is "${fieldPath}": the schema has no such field`)
}

function hasField(schema: StructuralSchema, fieldPath: string): boolean {
  let at: StructuralSchema | undefined = schema
  for (const [step] of fieldPath.matchAll(new RegExp(FIELD, 'g'))) {
    const name = step.startsWith('.') ? step.slice(1) : step.slice(2, -2)
    at = at?.properties?.[name] ?? at?.additionalProperties
  }
  return at !== undefined
}

function refuseMetadata(rule: string, where: string): void {
  const [read, field = 'name'] = /\b(?:self|oldSelf)\.metadata\.(\w+)/.exec(withoutTexts(rule)) ?? []
  if (field !== 'name' && field !== 'generateName')
    throw new Error(
      `${where} reads ${read}, but of metadata Kubernetes gives a rule name and generateName alone: use a field of the spec`,
    )
}

const withoutTexts = (rule: string): string => rule.replaceAll(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/g, "''")

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
  'maxProperties',
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
