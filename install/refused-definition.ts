import type { ApiError } from '#kube'
import type { CustomResourceDefinition } from '#sdk'

/** The API server has rejected a definition. The message is one line, with paths of the author's schema. */
export class RefusedDefinitionError extends Error {
  override readonly name = 'RefusedDefinitionError'
  constructor({ spec }: CustomResourceDefinition, refusal: ApiError) {
    const found = (refusal.details.causes ?? []).map(
      ({ field = '', message = '' }) => `${authorsPath(field, spec.versions)}: ${inOneLine(message)}`,
    )
    super(`resource ${spec.names.kind}: ${[...new Set(found)].join('; ')}`, { cause: refusal })
  }
}

/** The schema of the only version, or of one of several. */
const SCHEMA = /^spec\.(?:validation|versions\[(\d+)\]\.schema)\.openAPIV3Schema(?:\.|$)/

function authorsPath(field: string, versions: readonly { name: string }[]): string {
  const [root, index] = SCHEMA.exec(field) ?? []
  if (root === undefined) return field
  const version = index !== undefined && versions.length > 1 ? `${versions[Number(index)]?.name} ` : ''
  const path = field
    .slice(root.length)
    .replaceAll(/\.?properties\[([^\]]+)\]/g, '.$1')
    .replaceAll(/\.items\b/g, '[]')
    .replaceAll(/\.additionalProperties\b/g, '.*')
    .replace(/^\./, '')
    .replace(/^x-kubernetes-validations\b/, 'validations')
  return version + (path || 'the schema')
}

/**
 * Removes the JSON of the rule, and turns CEL's drawing of the place into a number: `undefined field 'sise' (at 10 in:
 * self.spec.sise > 3)`.
 */
function inOneLine(message: string): string {
  return message
    .replace(/^Invalid value: \{"Rule":.*?"OptionalOldSelf":\w+\}: /s, '')
    .replace(/^(?:messageExpression )?compilation failed: /, '')
    .replaceAll(/ERROR: <input>:\d+:(\d+): ([^\n]*)\n \| ([^\n]*)\n \| \.*\^+/g, '$2 (at $1 in: $3)')
    .replaceAll(/\s+/g, ' ')
}
