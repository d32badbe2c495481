import {
  coverageToken,
  type KubeObject,
  type ObjectSelector,
  type ReconcilerSpec,
  reconcilerSpec,
  relation,
  selectionOf,
} from '#contracts'
import type { Ask } from './selection.ts'

/** A Reconciler that the bridge works for. */
export interface Reconciler {
  name: string
  spec: ReconcilerSpec
  selects: ObjectSelector
  /** Which objects map to its keys, and which incarnation of it asks: another one wants every key enqueued again. */
  token: string
  object: KubeObject
}

/** A Reconciler that cannot be served; the others are not affected. */
export interface Refused {
  name: string
  reason: 'InvalidSpec'
  message: string
  object: KubeObject
}

export function parseReconciler(object: KubeObject): Reconciler | Refused {
  const { name } = object.metadata
  const refused = (message: string): Refused => ({ name, reason: 'InvalidSpec', message, object })
  const parsed = reconcilerSpec.safeParse(object.spec)
  if (!parsed.success)
    return refused(parsed.error.issues.map((issue) => `${pathOf(issue)}: ${issue.message}`).join('; '))
  const spec = parsed.data
  const wrong = wrongSelector(spec)
  if (wrong !== undefined) return refused(wrong)
  return { name, spec, selects: selectionOf(spec.for), token: coverageToken(object, spec), object }
}

export const isRefused = (entry: Reconciler | Refused): entry is Refused => 'reason' in entry

/**
 * What a Reconciler wants to be watched: what it owns or is related to is near the primary, unless it says otherwise. One
 * that finalizes wants all primaries, whatever it selects: it has to see that one has left its selection.
 */
export function asksOf({ for: primary, finalize, owns, related }: ReconcilerSpec): Ask[] {
  const { namespaces } = primary
  return [
    { ...(finalize ? {} : selectorsOf(primary)), namespaces, ref: primary },
    ...owns.map((owned) => ({ namespaces, metadataOnly: owned.metadataOnly, ref: owned })),
    ...related.map((one) => ({
      ...selectorsOf(one),
      metadataOnly: one.metadataOnly,
      namespaces: one.within === 'Cluster' ? undefined : namespaces,
      ref: one,
    })),
  ]
}

const selectorsOf = ({ selector, fieldSelector }: Pick<Ask, 'selector' | 'fieldSelector'>) => ({
  ...(selector !== undefined && { selector }),
  ...(fieldSelector !== undefined && { fieldSelector }),
})

function wrongSelector(spec: ReconcilerSpec): string | undefined {
  const parts = [
    { path: 'spec.for', parse: () => selectionOf(spec.for) },
    ...spec.related.map((one, index) => ({ path: `spec.related.${index}`, parse: () => relation(one) })),
  ]
  for (const { path, parse } of parts) {
    try {
      parse()
    } catch (error) {
      return `the selector of ${path}: ${(error as Error).message}`
    }
  }
  return undefined
}

const pathOf = ({ path }: { path: PropertyKey[] }): string => ['spec', ...path.map(String)].join('.')
