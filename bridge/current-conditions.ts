import type { ResourceRef } from '#contracts'
import { holderOf } from '#spec'
import type { Admission } from './admission.ts'
import type { ReconcilerConditions } from './condition-writer.ts'
import { type OverlappingCondition, refusedCondition, servedCondition, unpreparedCondition } from './conditions.ts'
import type { Reconciler } from './reconcilers.ts'
import type { Registry } from './registry.ts'
import type { ResourceStatus } from './types.ts'

interface ConditionFacts {
  registry: Pick<Registry, 'served' | 'refused'>
  admission: Pick<Admission, 'failureOf'>
  overlaps: ReadonlyMap<Reconciler, OverlappingCondition>
  statusesOf: (ref: ResourceRef) => readonly ResourceStatus[]
  /** The shard of this bridge. */
  shard: string
}

/** Returns the conditions that the Reconcilers of this shard should have now. */
export function currentConditions({ registry, admission, overlaps, statusesOf, shard }: ConditionFacts) {
  const refused = registry.refused.map(
    (entry): ReconcilerConditions => ({
      object: entry.object,
      conditions: [refusedCondition(entry)],
      shard: holderOf(entry.object) ?? shard,
    }),
  )
  const served = registry.served.map((entry): ReconcilerConditions => {
    const { object } = entry
    const failure = admission.failureOf(entry)
    const synced = failure === undefined ? servedCondition(entry, statusesOf) : unpreparedCondition(entry, failure)
    const conditions = [synced, overlaps.get(entry)].filter((one) => one !== undefined)
    // The shard that holds the Reconciler stays, so that it can still release the Reconciler.
    return { object, conditions, shard: failure === undefined ? shard : (holderOf(object) ?? shard) }
  })
  return [...refused, ...served]
}
