import { z } from 'zod'

/** Fields of a definition that contain a schema, and what each adds to the path. */
const PARTS = {
  element: '[]',
  valueType: '.*',
  innerType: '',
  in: '',
  out: '',
  left: '',
  right: '',
} as const

/** Throws an Error with the path for a part that is not a schema of this zod. Later errors would not name the path. */
export function refuseForeign(schema: unknown, path: string, seen = new Set<unknown>()): void {
  if (seen.has(schema)) return
  seen.add(schema)
  if (!(schema instanceof z.core.$ZodType)) throw new Error(`${path} is not a schema of the z that fairlead exports`)
  const def = schema._zod.def as unknown as Record<string, unknown>
  for (const [name, field] of Object.entries(def['shape'] ?? {})) refuseForeign(field, `${path}.${name}`, seen)
  for (const [part, step] of Object.entries(PARTS)) if (part in def) refuseForeign(def[part], path + step, seen)
  for (const list of [def['options'], def['items']])
    if (Array.isArray(list)) for (const one of list) refuseForeign(one, path, seen)
}
