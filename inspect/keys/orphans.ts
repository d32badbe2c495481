import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { type EventsView, NoEventsError, type StoredEvent } from '#events'
import type { WorkQueue } from '#queue'
import { finalizerOf, finalizerOfReconciler, RECONCILERS, reconcilerFinalizers } from '#spec'
import type { Row } from './rows.ts'
import type { KeyName } from './select.ts'

/** What a command that looks at the queue reads. */
export interface QueueView {
  queue: WorkQueue
  events: EventsView
}

/** An object that has the finalizer of a Reconciler that does not exist. */
export interface Orphan {
  ref: ResourceRef
  object: KubeObject
  finalizer: string
}

/** What EVENTS knows of Reconcilers that do not exist. */
export interface Orphans {
  /** True: it does not exist. False: it does, or EVENTS does not know. */
  isGone(reconciler: string): Promise<boolean>
  /** The object of one of its keys, if it has a finalizer that no Reconciler takes away. */
  find(reconciler: string, name: KeyName): Promise<Orphan | undefined>
}

interface Existing {
  names: Set<string>
  finalizers: Set<string>
}

/** Reads the Reconcilers once, when somebody asks. */
export function orphansIn(events: EventsView): Orphans {
  let known: Promise<Existing | undefined> | undefined
  const existing = () => (known ??= existingIn(events))
  return {
    async isGone(reconciler) {
      const names = (await existing())?.names
      return names !== undefined && !names.has(reconciler)
    },
    async find(reconciler, { namespace, name }) {
      const finalizers = (await existing())?.finalizers
      if (finalizers === undefined) return undefined
      const found: Orphan[] = []
      for await (const event of events.stored([{ name, ...(namespace !== undefined && { namespace }) }])) {
        const { object, key } = event
        if (!isThere(event) || object.metadata.namespace !== namespace) continue
        for (const finalizer of reconcilerFinalizers(object))
          if (!finalizers.has(finalizer)) found.push({ ref: key.ref, object, finalizer })
      }
      // One that was renamed has the finalizer of its identity.
      return found.find(({ finalizer }) => finalizer === finalizerOf(reconciler)) ?? found[0]
    },
  }
}

async function existingIn(events: EventsView): Promise<Existing | undefined> {
  const watched = await events.resources().catch((error: unknown) => {
    if (error instanceof NoEventsError) return []
    throw error
  })
  if (!watched.some((ref) => resourceName(ref) === resourceName(RECONCILERS))) return undefined
  const [names, finalizers] = [new Set<string>(), new Set<string>()]
  for await (const event of events.stored([{ ref: RECONCILERS }])) {
    if (!isThere(event)) continue
    names.add(event.object.metadata.name)
    finalizers.add(finalizerOfReconciler(event.object))
  }
  return { names, finalizers }
}

const isThere = ({ verb }: StoredEvent): boolean => verb === 'added' || verb === 'modified'

/** Marks a key whose Reconciler does not exist. */
export async function withOrphan(row: Row, orphans: Orphans): Promise<Row> {
  if (!(await orphans.isGone(row.reconciler))) return row
  const orphan = await orphans.find(row.reconciler, row)
  const isWaiting = orphan?.object.metadata.deletionTimestamp !== undefined
  return { ...row, orphaned: true, ...(orphan && isWaiting && { finalizer: orphan.finalizer }) }
}

/** For a shell: takes the finalizer away, and nothing if the object has changed meanwhile. */
export function finalizerPatch({ ref, object, finalizer }: Orphan): string {
  const { namespace, name, finalizers = [] } = object.metadata
  const kind = [ref.resource, ref.group].filter((part) => part !== '').join('.')
  const where = namespace === undefined ? '' : ` -n ${namespace}`
  const path = `/metadata/finalizers/${finalizers.indexOf(finalizer)}`
  const patch = [
    { op: 'test', path, value: finalizer },
    { op: 'remove', path },
  ]
  return `kubectl patch ${kind} ${name}${where} --type json -p '${JSON.stringify(patch)}'`
}

/** What the object waits for, and what to do, with the consequence of each. */
export function adviceOn(reconciler: string, orphan: Orphan): string {
  const { object, finalizer } = orphan
  const waits =
    object.metadata.deletionTimestamp === undefined
      ? 'When it is deleted, it will wait for that finalizer.'
      : 'It is being deleted, and waits for that finalizer.'
  return [
    `There is no Reconciler ${reconciler}, and the object has a finalizer that only this Reconciler removes: ${finalizer}.`,
    waits,
    'Create the Reconciler again (fairlead install -f FILE): its function cleans up, and then the finalizer is removed.',
    'Or remove the finalizer by hand: what the function would clean up stays.',
    `  ${finalizerPatch(orphan)}`,
  ].join('\n')
}
