import type { KubeObject } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { RECONCILERS, type Revision, revisionsOf } from '#spec'
import { type Gate, PRIORITY } from '../gate.ts'
import { recorded, repeatedAt } from './revisions.ts'

export interface RevisionRecordDependencies {
  kube: Pick<KubeClient, 'patch'>
  gate: Gate
  now: () => Date
  random: () => number
  failed: (error: unknown) => void
}

/** Records the revisions of a function in the status of its Reconciler. A bridge then runs every object again. */
export class RevisionRecord {
  readonly #deps: RevisionRecordDependencies
  /**
   * Revisions that this process has stored. An API server whose CRD does not have the field drops them, and they must
   * not be stored again and again.
   */
  readonly #stored = new Set<string>()
  /** A revision that was not stored, because a newer version of the Reconciler was on its way. */
  #owed: string | undefined
  /** The newest version of the Reconciler that has arrived. */
  #latest: KubeObject | undefined
  #storing: Promise<void> = Promise.resolve()

  constructor(deps: RevisionRecordDependencies) {
    this.#deps = deps
  }

  /**
   * Notes that a revision has run an object under this version of the Reconciler. Returns the time at which the object
   * has to run again for that.
   */
  ran(name: string, reconciler: KubeObject): Date | undefined {
    const { now, random } = this.#deps
    const known = revisionsOf(reconciler)
    const more = this.#stored.has(name) ? undefined : recorded(known, name, now())
    if (more !== undefined) this.#storing = this.#storing.then(() => this.#store(name, reconciler, more))
    return repeatedAt(known, name, { now: now(), random })
  }

  /** Notes a newer version of the Reconciler. */
  reconcilerChanged(reconciler: KubeObject): void {
    this.#latest = reconciler
    const owed = this.#owed
    this.#owed = undefined
    if (owed !== undefined) this.ran(owed, reconciler)
  }

  async #store(name: string, { metadata }: KubeObject, revisions: Revision[]): Promise<void> {
    if (this.#stored.has(name)) return
    const { kube, gate, failed } = this.#deps
    const path = resourcePath(RECONCILERS, undefined, metadata.name, 'status')
    const patch = { metadata: { resourceVersion: metadata.resourceVersion }, status: { revisions } }
    try {
      const caller = { reconciler: metadata.name, kind: PRIORITY.status }
      await gate.run(caller, () => kube.patch(path, patch, 'merge', { fieldManager: 'fairlead' }))
      this.#stored.add(name)
    } catch (error) {
      if (isConflict(error)) this.#tryWithNewer(name, metadata.resourceVersion)
      else if (!isNotFound(error)) failed(error)
    }
  }

  /** Retries with a newer version, which may have arrived during the request. Otherwise waits for it. */
  #tryWithNewer(name: string, tried: string | undefined): void {
    const latest = this.#latest
    if (latest === undefined || latest.metadata.resourceVersion === tried) this.#owed = name
    else this.ran(name, latest)
  }
}
