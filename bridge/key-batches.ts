import type { EventStore, Selection } from '#events'
import { keyOf } from '#events'
import { holdsFinalizer, identityOf, indexedSelection, keepsFinalizer } from '#spec'
import type { Reconciler } from './reconcilers.ts'
import { isSelectedBy } from './reconcilers.ts'
import type { Routes } from './routing.ts'

/** Returns the keys of the objects that EVENTS has and the Reconciler selects. `namespace`: see ownNamespaces(). */
export async function* keysOf(
  events: EventStore,
  routes: Routes,
  reconciler: Reconciler,
  namespace?: string,
): AsyncGenerator<string> {
  const { for: primary } = reconciler.spec
  const namespaces = ownNamespaces(primary.namespaces, namespace)
  // Only the selected objects are watched, so EVENTS has no others.
  if (isSelectedBy(primary, routes.selectionOf(primary))) {
    for await (const { key, deleted } of events.identities(primary, namespaces, { withoutNamespace: true }))
      if (!deleted) yield keyOf(key.namespace, key.name)
  } else yield* await events.selectedKeys(primary, namespaces, selectionBy(reconciler))
}

/**
 * Returns the namespaces of a Reconciler, or those of them that are the given one. Cluster-scoped objects count for every
 * namespace. Undefined: all namespaces.
 */
const ownNamespaces = (all: readonly string[] | undefined, one: string | undefined): readonly string[] | undefined =>
  one === undefined ? all : [one].filter((namespace) => all?.includes(namespace) ?? true)

/** Selects the objects of a Reconciler, and those that have left its selection with its finalizer. */
function selectionBy({ name, spec }: Reconciler): Selection {
  const selection = indexedSelection(spec.for)
  if (!keepsFinalizer(spec)) return selection
  const identity = identityOf(name, spec)
  return {
    text: `${selection.text} ${identity}`,
    byFields: true,
    matcher: () => {
      const selects = selection.matcher()
      return (labels, object) => object === undefined || selects(labels, object) || holdsFinalizer(object, identity)
    },
  }
}
