import { type KubeObject, type ResourceRef, resourceName } from '#contracts'
import { type EventsView, isPresent } from '#events'
import type { WorkQueue } from '#queue'
import { finalizerOf, finalizerOfReconciler, RECONCILERS, reconcilerFinalizers } from '#spec'
import { reconcilersIn, watchedIn } from '../stored.ts'
import type { Row } from './rows.ts'
import type { KeyName } from './select.ts'

/** The streams that commands about the queue read. */
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

/** Facts from EVENTS about Reconcilers that do not exist. */
export interface Orphans {
  /** True if the Reconciler does not exist; false if it exists or if EVENTS does not know. */
  isGone(reconciler: string): Promise<boolean>
  /** Returns the object of a key if it has a finalizer that no Reconciler removes. */
  find(reconciler: string, name: KeyName): Promise<Orphan | undefined>
}

interface Existing {
  names: Set<string>
  finalizers: Set<string>
}

/** Reads the Reconcilers once, at the first call. */
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
        if (!isPresent(event) || object.metadata.namespace !== namespace) continue
        for (const finalizer of reconcilerFinalizers(object))
          if (!finalizers.has(finalizer)) found.push({ ref: key.ref, object, finalizer })
      }
      // A renamed Reconciler uses the finalizer of its identity.
      return found.find(({ finalizer }) => finalizer === finalizerOf(reconciler)) ?? found[0]
    },
  }
}

async function existingIn(events: EventsView): Promise<Existing | undefined> {
  const watched = await watchedIn(events)
  if (!watched.some((ref) => resourceName(ref) === resourceName(RECONCILERS))) return undefined
  const reconcilers = await reconcilersIn(events)
  return {
    names: new Set(reconcilers.map(({ metadata }) => metadata.name)),
    finalizers: new Set(reconcilers.map(finalizerOfReconciler)),
  }
}

/** Marks a key whose Reconciler does not exist. */
export async function withOrphan(row: Row, orphans: Orphans): Promise<Row> {
  if (!(await orphans.isGone(row.reconciler))) return row
  const orphan = await orphans.find(row.reconciler, row)
  const isWaiting = orphan?.object.metadata.deletionTimestamp !== undefined
  return { ...row, orphaned: true, ...(orphan && isWaiting && { finalizer: orphan.finalizer }) }
}

/** Returns a patch for a shell that removes the finalizer; it fails if the object has changed meanwhile. */
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

/** Explains why the object cannot be deleted, and the possible actions with the consequence of each. */
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
