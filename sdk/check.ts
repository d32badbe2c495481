import { isRecord, type KubeObject } from '#contracts'
import type { Rule } from './builders.ts'
import { issuesOf, pathText } from './options.ts'
import { type AdmittedWrite, fieldOf, type Violation } from './rule.ts'
import { PRESERVE, RULES, type StructuralSchema, type ValidationRule } from './rules.ts'
import type { SpecChange, Validated } from './validation.ts'
import type { ResourceVersion } from './versions.ts'

/** The parts of a resource that judge an object. */
interface Judges {
  group: string
  version: string
  kind: string
  versions(): readonly ResourceVersion[]
  convert(object: KubeObject, version: string): KubeObject
  admit(write: AdmittedWrite): { object: KubeObject | undefined; violations: Violation[] }
  validate?: (change: SpecChange<unknown>) => Validated
}

/** What is found in an object of a file, and what is not looked at: rules in CEL, and about users. */
export interface Checked extends Validated {
  unchecked: readonly string[]
}

const EMBEDDED = 'x-kubernetes-embedded-resource'
const INVALID = 'FieldValueInvalid'

/** Checks an object that is to be created: by its schema, by its rules, and by `validate`, as far as the one before holds. */
export function checked(resource: Judges, object: KubeObject): Validated {
  const { group, kind } = resource
  const versions = resource.versions()
  const [stored] = versions
  const own = versions.find(({ version }) => object.apiVersion === `${group}/${version}`)
  if (stored === undefined || own === undefined || object.kind !== kind) {
    const known = versions.map(({ version }) => `${group}/${version}`).join(', ')
    return refused({ path: 'apiVersion', message: `${object.apiVersion} ${object.kind} is no ${kind} of ${known}` })
  }
  const { apiVersion: _, kind: __, metadata: ___, status: ____, ...body } = object
  const unknown = [...unknownIn(body, own.schema, [])]
  const wrong = own.spec.safeParse(object.spec ?? {})
  const ownIssues = wrong.success ? [] : issuesOf(wrong.error, object.spec ?? {}, 'spec')
  if (unknown.length > 0 || ownIssues.length > 0) return refused(...unknown, ...ownIssues)
  const { object: created, error } = inStored(resource, object, own.convert !== undefined)
  if (error !== undefined) return refused({ path: 'apiVersion', message: error })
  const { object: filled = created, violations } = resource.admit({ object: created })
  const { success, data, error: fault } = stored.spec.safeParse(filled.spec ?? {})
  if (!success) return refused(...issuesOf(fault, filled.spec ?? {}, `${stored.version} spec`))
  const { refusals, warnings } = resource.validate?.({ spec: data }) ?? { refusals: [], warnings: [] }
  return { refusals: [...violations, ...refusals], warnings }
}

const refused = (...refusals: Omit<Violation, 'reason'>[]): Validated => ({
  refusals: refusals.map((one) => ({ ...one, reason: INVALID })),
  warnings: [],
})

function inStored(resource: Judges, object: KubeObject, isConverted: boolean): { object: KubeObject; error?: string } {
  const { group, version } = resource
  try {
    return {
      object: isConverted ? resource.convert(object, version) : { ...object, apiVersion: `${group}/${version}` },
    }
  } catch (error) {
    return { object, error: (error as Error).message }
  }
}

/** The fields that the API server would drop, and kubectl refuses. */
function* unknownIn(
  value: unknown,
  schema: StructuralSchema | undefined,
  path: readonly PropertyKey[],
): Generator<Omit<Violation, 'reason'>> {
  if (schema === undefined) return
  if (Array.isArray(value))
    for (const [index, item] of value.entries()) yield* unknownIn(item, schema.items, [...path, index])
  else if (isRecord(value))
    for (const [name, field] of Object.entries(value)) {
      const known = fieldOf(schema, name)
      if (known !== undefined) yield* unknownIn(field, known, [...path, name])
      else if (schema[PRESERVE] !== true && schema[EMBEDDED] !== true)
        yield { path: pathText([...path, name], ''), message: 'the schema has no such field' }
    }
}

/** What only the API server checks: `schema` is that of the resource without `rules`. */
export const uncheckedOf = (schema: StructuralSchema, rules: readonly Rule[]): string[] => [
  ...celIn(schema),
  ...rules.flatMap((rule) => (rule.in === 'policy' ? [rule.title] : [])),
]

function* celIn(schema: StructuralSchema): Generator<string> {
  for (const { rule } of (schema[RULES] ?? []) as ValidationRule[]) yield rule
  const { properties = {}, items, additionalProperties } = schema
  for (const part of [...Object.values(properties), items, additionalProperties]) if (part) yield* celIn(part)
}
