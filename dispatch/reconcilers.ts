import {
  type KubeObject,
  type ReconcilerSpec,
  type ResourceRef,
  reconcilerSpec,
  selectionOf,
  shownUrl,
} from '#contracts'

/** A Reconciler that cannot be served as it is, for its condition. */
export interface Refused {
  reason: 'InvalidSpec'
  message: string
}

/** What a Reconciler object asks of a dispatcher: the specification, or why it cannot be served. */
export function readReconciler(object: KubeObject): ReconcilerSpec | Refused {
  const parsed = reconcilerSpec.safeParse(object.spec)
  if (!parsed.success) {
    const issues = parsed.error.issues.map(({ path, message }) => `${['spec', ...path].join('.')}: ${message}`)
    return { reason: 'InvalidSpec', message: issues.join('; ') }
  }
  try {
    selectorOf(parsed.data)
  } catch (error) {
    return { reason: 'InvalidSpec', message: `spec.for.selector: ${(error as Error).message}` }
  }
  const url = parsed.data.invoke.http?.url
  if (url !== undefined && !isHttpUrl(url))
    return {
      reason: 'InvalidSpec',
      message: `spec.invoke.http.url: ${shownUrl(url)} is no http:// or https:// address`,
    }
  return parsed.data
}

const isHttpUrl = (text: string): boolean => /^https?:\/\//.test(text) && URL.canParse(text)

export const isRefused = (read: ReconcilerSpec | Refused): read is Refused => 'reason' in read

/** The resources of which everything has to be known before the first run. */
export const resourcesOf = ({ for: primary, owns, related }: ReconcilerSpec): ResourceRef[] => [
  primary,
  ...owns,
  ...related,
]

/** Whether a reconciler is for an object at all: its namespaces and selectors. */
export const selectorOf = ({ for: primary }: ReconcilerSpec): ((object: KubeObject) => boolean) => selectionOf(primary)
