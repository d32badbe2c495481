import {
  coverageToken,
  type KubeObject,
  type LabelSelector,
  parseSelector,
  type ReconcilerSpec,
  reconcilerSpec,
} from '#contracts'

/** A Reconciler that the bridge works for. */
export interface Reconciler {
  name: string
  spec: ReconcilerSpec
  selects: LabelSelector
  /** Which objects map to its keys, and which incarnation of it asks: another one wants every key enqueued again. */
  token: string
  object: KubeObject
}

/** A Reconciler that cannot be served; the others are not affected. */
export interface Refused {
  name: string
  reason: 'InvalidSpec' | 'RelatedNotSupported'
  message: string
  object: KubeObject
}

export function parseReconciler(object: KubeObject): Reconciler | Refused {
  const { name } = object.metadata
  const refused = (reason: Refused['reason'], message: string): Refused => ({ name, reason, message, object })
  const parsed = reconcilerSpec.safeParse(object.spec)
  if (!parsed.success) {
    return refused('InvalidSpec', parsed.error.issues.map((issue) => `${pathOf(issue)}: ${issue.message}`).join('; '))
  }
  const spec = parsed.data
  if (spec.related.length > 0) {
    return refused('RelatedNotSupported', 'spec.related: changes of related resources are not mapped to keys yet')
  }
  try {
    const selects = parseSelector(spec.for.selector ?? '')
    return { name, spec, selects, token: coverageToken(object, spec), object }
  } catch (error) {
    return refused('InvalidSpec', `spec.for.selector: ${(error as Error).message}`)
  }
}

export const isRefused = (entry: Reconciler | Refused): entry is Refused => 'reason' in entry

const pathOf = ({ path }: { path: PropertyKey[] }): string => ['spec', ...path.map(String)].join('.')
