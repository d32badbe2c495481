import type { KubeObject } from '#contracts'
import {
  coverageId,
  crossesNamespaces,
  isNamedInBody,
  isRefused,
  type ObjectSelector,
  type ReconcilerSpec,
  type Refused,
  readReconciler,
  selectionOf,
} from '#spec'
import type { Ask } from './selection.ts'

/** A Reconciler that the bridge works for. */
export interface Reconciler {
  name: string
  spec: ReconcilerSpec
  selects: ObjectSelector
  /** Which objects map to its keys, and which incarnation of it asks: another one wants every key enqueued again. */
  coverageId: string
  object: KubeObject
}

/** A Reconciler that cannot be served; the others are not affected. */
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
 * What a Reconciler wants to be watched: what it owns or is related to is near the primary, unless it says otherwise. One
 * that finalizes wants all primaries, whatever it selects: it has to see that one has left its selection.
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
