import { z } from 'zod'
import type { ResourceOptions } from './crd.ts'
import { explain } from './explain.ts'
import { refuseForeign } from './foreign.ts'
import { keysOf, refuseUnknown } from './options.ts'

export const RESOURCE_OPTIONS = keysOf<ResourceOptions<z.ZodObject, z.ZodObject>>({
  group: true,
  version: true,
  served: true,
  kind: true,
  plural: true,
  scope: true,
  shortNames: true,
  categories: true,
  spec: true,
  status: true,
  validations: true,
  scale: true,
  columns: true,
})

const label = z
  .string()
  .max(63)
  .regex(/^[a-z]([-a-z0-9]*[a-z0-9])?$/, 'lower-case letters, digits and -, a letter first')
const pathIn = (root: string) =>
  z.string().regex(new RegExp(`^\\.${root}\\.`), `write a JSON path, such as .${root}.size`)

/** The options apart from schemas and rules, which have their own checks. */
const values = z.object({
  group: z
    .string()
    .max(253)
    .regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$/, 'write a domain, such as example.com'),
  version: label,
  kind: z
    .string()
    .max(63)
    .regex(/^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$/, 'letters, digits and -, a letter first'),
  plural: label,
  scope: z.enum(['Namespaced', 'Cluster']).optional(),
  shortNames: z.array(label).optional(),
  categories: z.array(label).optional(),
  served: z
    .array(
      z.strictObject({
        version: label,
        spec: z.unknown(),
        status: z.unknown().optional(),
        validations: z.unknown().optional(),
        deprecated: z.string().optional(),
      }),
    )
    .optional(),
  scale: z
    .strictObject({ spec: pathIn('spec'), status: pathIn('status'), selector: pathIn('status').optional() })
    .optional(),
  columns: z
    .array(
      z.strictObject({
        name: z.string().min(1),
        path: z.string().regex(/^\./, 'write a JSON path, such as .spec.size'),
        type: z.enum(['string', 'integer', 'number', 'boolean', 'date']).optional(),
        description: z.string().optional(),
        priority: z.int32().min(0).optional(),
      }),
    )
    .optional(),
})

type Given = { readonly [Name in keyof ResourceOptions<z.ZodObject, z.ZodObject>]?: unknown }

/**
 * Throws for options with a wrong type: Node.js strips types without checking them. The message is one line with the
 * path.
 */
export function refuseWrongResource(options: Given): void {
  const whose = `resource ${String(options.kind)}`
  refuseUnknown(options, RESOURCE_OPTIONS, whose)
  for (const name of ['group', 'version', 'kind', 'plural'] as const)
    if (typeof options[name] !== 'string' || options[name] === '')
      throw new Error(`${whose} has no "${name}": give it a text`)
  refuseSchemas(options, `${whose}:`)
  const { success, data, error } = values.safeParse(options)
  if (!success) throw new Error(`${whose}: ${explain(error, options)}`, { cause: error })
  for (const { version, spec, status = options.status } of data.served ?? [])
    refuseSchemas({ spec, status }, `${whose}: ${version}`)
}

function refuseSchemas(schemas: Given, where: string): void {
  for (const name of ['spec', 'status'] as const) {
    if (!(schemas[name] instanceof z.ZodObject))
      throw new Error(`${where} "${name}" is not a z.object() of the z that fairlead exports`)
    refuseForeign(schemas[name], `${where} ${name}`)
  }
}
