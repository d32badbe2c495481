import { type ResourceRef, resourceName } from '#contracts'
import { RECONCILERS } from '#spec'
import { FINALIZED } from './orphaned-finalizers.ts'
import type { Reconciler, RefusedReconciler } from './reconcilers.ts'
import { RESYNCS } from './resyncs.ts'
import { type IsClusterScoped, type KeptAsk, Routes } from './routing.ts'

/**
 * Returns whether a Reconciler asks for a resource in a scope. The scope is a namespace, or undefined for all of them.
 * The time of the last resync is stored as a cursor too; its scope is the Reconciler's name.
 */
export function demandOf(
  served: readonly Reconciler[],
  refused: readonly RefusedReconciler[],
  isClusterScoped: IsClusterScoped,
  kept: readonly KeptAsk[] = [],
): (ref: ResourceRef, scope: string | undefined) => boolean {
  const routes = new Routes(served, undefined, kept)
  const places = routes.refs.flatMap((ref) => {
    const namespaces = isClusterScoped(ref) ? undefined : routes.namespacesOf(ref)
    return (namespaces ?? [undefined]).map((namespace) => placeName(ref, namespace))
  })
  const resyncs = [...served, ...refused].map(({ name }) => placeName(RESYNCS, name))
  const wanted = new Set([placeName(RECONCILERS, undefined), ...places, ...resyncs])
  const untold = new Set(refused.flatMap(({ object }) => refsIn(object.spec)).map(resourceName))
  return (ref, scope) =>
    wanted.has(placeName(ref, scope)) ||
    untold.has(resourceName(ref)) ||
    // OrphanedFinalizers removes these records itself.
    resourceName(ref) === resourceName(FINALIZED)
}

const placeName = (ref: ResourceRef, scope = ''): string => `${resourceName(ref)} ${scope}`

/**
 * Returns everything that looks like a resource in a refused specification, because another version of Fairlead may
 * accept it.
 */
function refsIn(value: unknown): ResourceRef[] {
  if (typeof value !== 'object' || value === null) return []
  const { group, version, resource } = value as Partial<Record<keyof ResourceRef, unknown>>
  const isRef = [group, version, resource].every((part) => typeof part === 'string')
  return [...(isRef ? [value as ResourceRef] : []), ...Object.values(value).flatMap(refsIn)]
}
