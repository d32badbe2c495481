import { ConfigMap, type Reconciler, reconciler } from '#sdk'

/** The label of the ConfigMaps that are reconciled, and of those that follow from an edit. */
export const ROLE = 'fairlead.dev/size'
/** The field of a ConfigMap that an edit sets. The ConfigMap that it owns follows. */
export const EDIT = 'edit'
const SOONEST_SECONDS = 3600
const SPREAD_SECONDS = 3600

export const teamOf = (number: number): string => `team-${number}`

/**
 * A reconciler of one team's ConfigMaps. It owns ConfigMaps, so EVENTS has all of them. Each object waits for one to two
 * hours, as with most operators.
 */
export const sizeReconciler = (number: number): Reconciler =>
  reconciler({
    name: `size-${number}`,
    for: ConfigMap,
    selector: `${ROLE}=primary`,
    namespaces: [teamOf(number)],
    owns: [ConfigMap],
    reconcile({ object: { metadata, data } }) {
      const edit = data?.[EDIT]
      const copy = {
        metadata: { name: `${metadata.name}-copy`, labels: { [ROLE]: 'copy' } },
        data: { [EDIT]: edit ?? '' },
      }
      const after = SOONEST_SECONDS + (hash(metadata.name + metadata.namespace) % SPREAD_SECONDS)
      return { apply: edit === undefined ? [] : [ConfigMap.of(copy)], requeueAfter: after }
    },
  }) as Reconciler

function hash(text: string): number {
  let value = 0
  for (let index = 0; index < text.length; index++) value = (value * 31 + text.charCodeAt(index)) >>> 0
  return value
}
