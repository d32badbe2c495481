import type { KubeObject, ResourceRef } from '#contracts'
import { UsageError } from '#host/exit'
import type { ServedResource } from '#kube'
import { isRefused, readReconciler } from '#spec'
import { watchedAs } from '../selection.ts'

/** A kind that the user has named. */
export interface NamedKind {
  kind: string
  ref: ResourceRef
  /** Undefined if it is unknown. */
  namespaced?: boolean
  /** Undefined if it is unknown. */
  isServed?: boolean
}

/**
 * Finds a kind by its name. The API server knows all names of a kind. If it is unreachable, or no longer has the
 * definition, the Reconcilers know their kinds, and EVENTS knows the watched kinds.
 */
export function kindNamed(
  name: string,
  reconcilers: readonly KubeObject[],
  served: readonly ServedResource[] | undefined,
  watched: readonly ResourceRef[],
): NamedKind {
  const [wanted = '', ...rest] = name.toLowerCase().split('.')
  const group = rest.join('.')
  const isCalled = (one: ResourceRef, names: readonly string[]) =>
    (one.resource === wanted || names.includes(wanted)) && (group === '' || one.group === group)
  const declared = reconcilers.flatMap(declaredKinds).find((one) => isCalled(one, [one.kind.toLowerCase()]))
  const there = served?.find((one) => isCalled(one, one.aliases))
  if (there) {
    const same = reconcilers.flatMap(declaredKinds).find((one) => isSameKind(one, there))
    const { kind, namespaced } = there
    return { kind, namespaced, isServed: true, ref: refOf(same ?? there) }
  }
  if (declared) return { kind: declared.kind, ref: refOf(declared), ...(served && { isServed: false }) }
  if (served)
    throw new UsageError(`the API server has no resource ${JSON.stringify(name)}: kubectl api-resources lists them`)
  const [ref] = watchedAs(name, watched)
  if (ref === undefined) throw new UsageError(`no bridge watches ${name}`)
  return { kind: name, ref: refOf(ref) }
}

const isSameKind = (a: Pick<ResourceRef, 'group' | 'resource'>, b: Pick<ResourceRef, 'group' | 'resource'>) =>
  a.group === b.group && a.resource === b.resource

/** Returns the kinds of a Reconciler, the primary kind first: users ask for it most often. */
function declaredKinds(object: KubeObject): (ResourceRef & { kind: string })[] {
  const spec = readReconciler(object)
  return isRefused(spec) ? primaryOf(object) : [spec.for, ...spec.owns, ...spec.related]
}

/** Returns the primary kind of a rejected Reconciler, if its spec contains one. */
function primaryOf({ spec }: KubeObject): (ResourceRef & { kind: string })[] {
  const { for: primary } = (spec ?? {}) as { for?: Partial<ResourceRef & { kind: string }> }
  const { group, version, resource, kind } = primary ?? {}
  if (group === undefined || version === undefined || resource === undefined || kind === undefined) return []
  return [{ group, version, resource, kind }]
}

/** Whether the Reconciler reconciles objects of that kind. */
export const isFor = (reconciler: KubeObject, ref: ResourceRef): boolean => {
  const spec = readReconciler(reconciler)
  return (isRefused(spec) ? primaryOf(reconciler) : [spec.for]).some((one) => isSameKind(one, ref))
}

const refOf = ({ group, version, resource }: ResourceRef): ResourceRef => ({ group, version, resource })
