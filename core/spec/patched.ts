import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { keyName } from './names.ts'
import { type BeforeNote, beforeNote, byPath, type PatchedFields, recordIn, type ValuesBefore } from './patch-record.ts'
import type { ReconcilerSpec, RelatedResource } from './reconciler.ts'
import { valuesAt } from './selector.ts'

export type PatchedResource = NonNullable<ReconcilerSpec['patches']>[number]

/** The prefix of the names that patchRecordOf() and patchManagerOf() return. */
export const PATCH_RECORDS = 'patched.fairlead.dev/'

/** Returns the annotation of a primary that lists the objects whose fields the reconciler has set for it. */
export const patchRecordOf = (identity: string): string => `${PATCH_RECORDS}${keyName(identity)}`

/**
 * Returns the field manager of the fields that the reconciler sets for this primary: 101 characters at most. Another
 * primary has another one, so that each gives back its own fields only.
 */
export const patchManagerOf = (identity: string, { metadata: { uid = '' } }: KubeObject): string =>
  `${patchRecordOf(identity)}/${hash('sha256', uid, 'base64url').slice(0, 16)}`

/**
 * Returns the annotation of a patched object that has the values of before of the fields that the manager has taken. No
 * Reconciler has a name with an underscore, so it is no record.
 */
export const beforeAnnotationOf = (manager: string): string =>
  `${PATCH_RECORDS}before_${hash('sha256', manager, 'hex').slice(0, 16)}`

/** Returns the object with an annotation that has the values of before of these paths: they outlive the record. */
export function withBefore(
  object: KubeObject,
  manager: string,
  before: ValuesBefore,
  paths: readonly string[],
): KubeObject {
  const values = Object.entries(byPath(before)).filter(([path]) => paths.includes(path))
  if (values.length === 0) return object
  const note = values.map(([path, value]) => [path, { before: value, set: valuesAt(object, path)[0] }] as const)
  const annotations = {
    ...object.metadata.annotations,
    [beforeAnnotationOf(manager)]: JSON.stringify(Object.fromEntries(note)),
  }
  return { ...object, metadata: { ...object.metadata, annotations } }
}

/**
 * Returns the value of before of a field in that annotation. Undefined: there is none, or the field does not have the value that
 * was set with it. Anybody may have written the annotation: a value of another type would never return.
 */
export function beforeIn(object: KubeObject, manager: string, path: string): ValuesBefore[string] | undefined {
  const note = noteIn(object, beforeAnnotationOf(manager))[path]
  if (note?.set === undefined || note.set !== valuesAt(object, path)[0]) return undefined
  return note.before === null || typeof note.before === typeof note.set ? note.before : undefined
}

function noteIn({ metadata: { annotations } }: KubeObject, annotation: string): BeforeNote {
  try {
    return beforeNote.safeParse(JSON.parse(annotations?.[annotation] ?? '{}')).data ?? {}
  } catch {
    return {}
  }
}

/**
 * Returns the record of a primary. It is empty if the annotation is missing, was copied from another object, or is not
 * valid.
 */
export function patchedBy({ metadata }: KubeObject, identity: string): PatchedFields[] {
  return recordIn(metadata, patchRecordOf(identity))
}

/** Returns the patched kinds as relations: the record names the related objects. */
export const patchRelations = (
  { patches = [] }: Pick<ReconcilerSpec, 'patches'>,
  identity: string,
): RelatedResource[] =>
  patches.map(({ group, version, resource, kind, within }) => {
    const annotation = patchRecordOf(identity)
    return {
      group,
      version,
      resource,
      kind,
      within,
      record: annotation,
      byName: `metadata.annotations['${annotation}']`,
    }
  })

/** Returns everything that objects of the Reconciler are related to: `related`, and the kinds that it patches. */
export const relationsOf = (spec: ReconcilerSpec, identity: string): RelatedResource[] => [
  ...spec.related,
  ...patchRelations(spec, identity),
]

/** Whether the objects of the Reconciler carry its finalizer. */
export const keepsFinalizer = ({ finalize, patches = [] }: Pick<ReconcilerSpec, 'finalize' | 'patches'>): boolean =>
  finalize || patches.length > 0
