import type { KubeObject, ReconcilerSpec } from '#contracts'
import type { EventStore, ObjectKey, OwnerKey } from '#events'
import { type KubeClient, resourcePath } from '#kube'
import { undefinedIfGone } from './errors.ts'
import { DROPPED, type Gate, PRIORITY } from './gate.ts'
import { isControlledBy, type World } from './world.ts'

export interface Observation extends World {
  /** The primary's own controller, where that is the primary of some Reconciler. */
  owner: OwnerKey | undefined
}

/** The primary and what it controls, in one read of EVENTS; undefined when it is gone. */
export async function observePrimary(
  { kube, events, gate }: { kube: KubeClient; events: EventStore; gate: Gate },
  spec: ReconcilerSpec,
  { namespace, name }: Pick<ObjectKey, 'namespace' | 'name'>,
  signal: AbortSignal,
): Promise<Observation | undefined> {
  const { primary, owned } = await events.observe({ primary: { ref: spec.for, namespace, name }, owned: spec.owns })
  if (primary === undefined) return undefined
  const object = primary.referenceOnly ? await whole(primary.object) : primary.object
  if (object === undefined) return undefined
  const children = spec.owns.flatMap((resource, index) =>
    (owned[index] ?? [])
      .filter((child) => isControlledBy(child.object, object))
      .map((child) => ({ resource, object: child.object })),
  )
  return { object, owned: children, owner: primary.owner }

  /** EVENTS holds only a reference to Secrets and to objects over the size limit. */
  async function whole(reference: KubeObject): Promise<KubeObject | undefined> {
    const path = resourcePath(spec.for, reference.metadata.namespace, reference.metadata.name)
    const read = () => kube.get(path, { signal }).catch(undefinedIfGone)
    const found = await gate.run(PRIORITY.create, read, { signal })
    return found === DROPPED ? undefined : found
  }
}
