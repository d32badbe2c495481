import { type ReconcilerSpec, userNameOf } from '#spec'
import type { ReconciliationDependencies } from '../run/dependencies.ts'

/**
 * Returns dependencies with which a reconciler's runs use the rights of its account, for writes, and for reads of
 * objects that EVENTS has only as references. These objects are not shared with other accounts. Without an account,
 * runs have the rights of this process.
 */
export function actingAs<Deps extends ReconciliationDependencies>(
  deps: Deps,
  { serviceAccount }: ReconcilerSpec,
): Deps {
  if (serviceAccount === undefined) return deps
  const account = userNameOf(serviceAccount)
  const kube = deps.kube.as(account)
  return { ...deps, kube, references: deps.references.as(account, kube), adoptions: deps.adoptions.as(kube) }
}
