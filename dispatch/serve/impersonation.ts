import { type ReconcilerSpec, userNameOf } from '#spec'
import type { ReconciliationDependencies } from '../run/dependencies.ts'

/**
 * What a reconciler's runs do, they do with the rights of its account: writes, and reads of what travels as a reference
 * only, which therefore are not shared with others. Without an account they have those of this process.
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
