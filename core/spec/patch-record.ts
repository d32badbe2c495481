import { z } from 'zod'
import type { KubeObject } from '#contracts'
import { resourceRef } from './forms.ts'

/* The annotation of a primary that lists the objects of others whose fields a reconciler has set for it. */

/** The objects of one primary whose fields are set. 256 of them fit into the annotations of an object. */
export const MOST_PATCHED = 256

const name = z
  .string()
  .min(1)
  .max(253)
  .regex(/^(?!\.{1,2}$)[^/%]+$/)

/** What the record holds of a value of before. */
const value = z.union([z.string().max(1024), z.number(), z.boolean()]).nullable()

/**
 * What a patched object has of each taken field, by path: the value of before, and the one that was set with it. `set` shows
 * whether the present value is still that of the function.
 */
export const beforeNote = z.record(z.string(), z.object({ before: value, set: z.unknown() }))

export type BeforeNote = z.output<typeof beforeNote>

/** Whether the record can hold the name of an object or of a namespace. A record with another one would not be read. */
export const isRecordedName = (text: unknown): boolean => name.safeParse(text).success

/** Whether the record can hold this value of before. */
export const isRecordedValue = (found: unknown): found is z.output<typeof value> => value.safeParse(found).success

const patchedFields = z.object({
  ...resourceRef,
  namespace: name.optional(),
  name,
  /** The fields are those of the subresource `status`. */
  status: z.literal(true).optional(),
  /** A digest of the paths of the fields that were applied last. Left out: nothing is known to be applied. */
  paths: z.string().max(32).optional(),
  /**
   * The values of before, by path, of fields that may be taken over: `{ 'spec.replicas': 3 }`. Null: there was none. They
   * are recorded before the fields are set.
   */
  before: z.record(z.string().max(120), value).optional(),
  /** The last corrections of these fields: see Contest in reconcile/brake.ts. */
  contest: z
    .object({
      times: z.int().min(0),
      at: z.number(),
      manager: z.string().max(128).optional(),
      fields: z.array(z.string().max(128)).max(4),
      /** The generation of the primary at the last correction. */
      on: z.number().optional(),
    })
    .optional(),
})

/** An object whose fields a reconciler has set, or is about to set. */
export type PatchedFields = z.output<typeof patchedFields>

export type ValuesBefore = NonNullable<PatchedFields['before']>

/** Returns the values in the order of their paths. */
export const byPath = (before: ValuesBefore): ValuesBefore =>
  Object.fromEntries(Object.entries(before).sort(([path], [other]) => (path < other ? -1 : 1)))

const record = z.object({ uid: z.string(), objects: z.array(patchedFields).max(MOST_PATCHED) })

/**
 * Returns the value of the annotation: one text for one record, in whatever order it came about. Undefined: nothing is recorded.
 * Throws if it could not be read again.
 */
export function patchRecord({ metadata: { uid } }: KubeObject, objects: PatchedFields[]): string | undefined {
  if (objects.length === 0) return undefined
  // The schema puts fields in its own order.
  const texts = record
    .parse({ uid, objects })
    .objects.map(({ before, ...one }) => JSON.stringify({ ...one, ...(before && { before: byPath(before) }) }))
  return `{"uid":${JSON.stringify(uid)},"objects":[${texts.sort().join()}]}`
}

/** Returns the objects in a record. None if it is missing, was copied from another object, or is not valid. */
export function recordIn({ annotations, uid }: KubeObject['metadata'], annotation: string): PatchedFields[] {
  const text = annotations?.[annotation]
  if (text === undefined) return []
  try {
    const { success, data } = record.safeParse(JSON.parse(text))
    return success && data.uid === uid ? data.objects : []
  } catch {
    return []
  }
}

/** Returns the names in a record of the objects of a resource. */
export const recordedNames = (
  { metadata }: KubeObject,
  annotation: string,
  { group, resource }: Pick<PatchedFields, 'group' | 'resource'>,
): string[] => [
  ...new Set(
    recordIn(metadata, annotation)
      .filter((one) => one.group === group && one.resource === resource)
      .map((one) => one.name),
  ),
]
