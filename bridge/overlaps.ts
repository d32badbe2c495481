import type { ResourceRef } from '#contracts'
import type { OverlappingCondition } from './conditions.ts'
import type { Reconciler } from './reconcilers.ts'

/** The number of Reconcilers in a message, and of kinds of each. */
const NAMED = 5
const EVERYWHERE = '*'

type Kind = Pick<ResourceRef, 'group' | 'resource'>

/**
 * Returns the condition of each Reconciler that is for the same kind as another one, in a common namespace, and owns a
 * kind that the other one owns. Selectors are not compared: the bridge does not know whether any object matches both.
 */
export function overlapsOf(reconcilers: readonly Reconciler[]): Map<Reconciler, OverlappingCondition> {
  const sorted = reconcilers.toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const places = new Map<string, Reconciler[]>()
  for (const reconciler of sorted) {
    for (const { place } of placesOf(reconciler, ['', ...(reconciler.spec.for.namespaces ?? [EVERYWHERE])])) {
      const there = places.get(place)
      if (there) there.push(reconciler)
      else places.set(place, [reconciler])
    }
  }
  const overlaps = new Map<Reconciler, OverlappingCondition>()
  for (const reconciler of sorted) {
    const { namespaces } = reconciler.spec.for
    const kinds = new Map<Reconciler, Set<string>>()
    for (const { place, owned } of placesOf(reconciler, namespaces ? [EVERYWHERE, ...namespaces] : [''])) {
      // The Reconciler itself may be among them. One more than the limit makes the message mention that there are
      // others.
      const there = places.get(place)?.slice(0, NAMED + 2) ?? []
      for (const other of there)
        if (other !== reconciler) kinds.set(other, (kinds.get(other) ?? new Set()).add(nameOf(owned)))
    }
    if (kinds.size > 0) overlaps.set(reconciler, conditionOf(reconciler, kinds))
  }
  return overlaps
}

/** Returns each kind that a Reconciler owns, in each of these namespaces. '' stands for any namespace. */
const placesOf = ({ spec }: Reconciler, namespaces: readonly string[]) =>
  spec.owns.flatMap((owned) =>
    namespaces.map((namespace) => ({ owned, place: `${nameOf(spec.for)} ${nameOf(owned)} ${namespace}` })),
  )

function conditionOf(
  { spec, object }: Reconciler,
  kinds: ReadonlyMap<Reconciler, ReadonlySet<string>>,
): OverlappingCondition {
  const others = [...kinds].sort(([a], [b]) => (a.name < b.name ? -1 : 1))
  const named = listed(others.map(([{ name }, owned]) => `${name} (${listed([...owned].sort())})`))
  const isSelective = [spec, ...others.map(([other]) => other.spec)].some(
    ({ for: primary }) => primary.selector !== undefined || primary.fieldSelector !== undefined,
  )
  const where = isSelective ? ' Objects that only one of their selectors matches are not concerned.' : ''
  const { generation } = object.metadata
  return {
    type: 'Overlapping',
    status: 'True',
    reason: 'SameKinds',
    message: `other Reconcilers for ${nameOf(spec.for)} own the same kinds: ${named}. Each one prunes and repairs only what it has created; a name that two of them want stays with the first.${where}`,
    ...(generation !== undefined && { observedGeneration: generation }),
  }
}

const listed = (items: readonly string[]): string =>
  items.slice(0, NAMED).join(', ') + (items.length > NAMED ? ' and others' : '')

const nameOf = ({ group, resource }: Kind): string => (group === '' ? resource : `${resource}.${group}`)
