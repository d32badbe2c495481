import type { KubeObject } from '#contracts'
import {
  coverageId,
  crossesNamespaces,
  holdsFinalizer,
  identityOf,
  isNamedInBody,
  isRefused,
  type ObjectSelector,
  type ReconcilerSpec,
  type Refused,
  readReconciler,
  selectionOf,
} from '#spec'
import type { Ask } from './selection.ts'

/** A Reconciler that the bridge serves. */
export interface Reconciler {
  name: string
  spec: ReconcilerSpec
  selects: ObjectSelector
  /** The ID of the objects that map to its keys, and of its incarnation. For a new ID, every key is enqueued again. */
  coverageId: string
  object: KubeObject
}

/** A Reconciler that cannot be served. Other Reconcilers are not affected. */
export interface RefusedReconciler extends Refused {
  name: string
  object: KubeObject
}

export function parseReconciler(object: KubeObject): Reconciler | RefusedReconciler {
  const { name } = object.metadata
  const spec = readReconciler(object)
  if (isRefused(spec)) return { ...spec, name, object }
  return { name, spec, selects: selectionOf(spec.for), coverageId: coverageId(object, spec), object }
}

/**
 * Whether the Reconciler selects the object, or the object has left the selection by labels and fields with its
 * finalizer.
 */
export function hasKey({ name, spec, selects }: Reconciler, object: KubeObject): boolean {
  if (selects(object)) return true
  const isHeld = spec.finalize && holdsFinalizer(object, identityOf(name, spec))
  return isHeld && selectionOf({ namespaces: spec.for.namespaces })(object)
}

/**
 * Returns the resources that a Reconciler needs to be watched. Owned and related objects are watched in the namespaces
 * of the primary by default. For a Reconciler with `finalize` all primaries are watched, whatever it selects, because
 * it must observe that a primary has left its selection.
 */
export function asksOf({ for: primary, finalize, owns, related }: ReconcilerSpec): Ask[] {
  const { namespaces } = primary
  return [
    { ...(finalize ? {} : selectorsOf(primary)), namespaces, namesInBody: related.some(isNamedInBody), ref: primary },
    ...owns.map((owned) => ({ namespaces, metadataOnly: owned.metadataOnly, ref: owned })),
    ...related.map((one) => ({
      ...selectorsOf(one),
      metadataOnly: one.metadataOnly,
      namespaces: crossesNamespaces(one) ? undefined : namespaces,
      ref: one,
    })),
  ]
}

const selectorsOf = ({ selector, fieldSelector }: Pick<Ask, 'selector' | 'fieldSelector'>) => ({
  ...(selector !== undefined && { selector }),
  ...(fieldSelector !== undefined && { fieldSelector }),
})
