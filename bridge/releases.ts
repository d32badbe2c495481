import type { KubeObject, RunLog } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { pause, Wake } from '#primitives'
import type { WorkQueue } from '#queue'
import { RECONCILERS } from '#spec'
import { releasedStatus } from './conditions.ts'

export interface ReleasesDeps {
  kube: Pick<KubeClient, 'patch'>
  queue: Pick<WorkQueue, 'isServed'>
  log: RunLog
  now: () => Date
  /** The shard of this bridge. */
  shard: string
  /** Returns the Reconcilers that this shard holds and another shard shall serve. */
  leaving: () => KubeObject[]
}

const LOOK_EVERY_MS = 1000
const IDLE_MS = 60_000
/** A key on its way to a process is neither waiting there nor running, for some milliseconds. */
const QUIET_LOOKS = 3

/**
 * Releases the Reconcilers that other shards shall serve, each when no process of this shard waits for its keys or runs
 * one. EVENTS has the new label by then, where processes follow the Reconcilers.
 */
export class Releases {
  readonly #deps: ReleasesDeps
  /** The number of looks in a row that found no process, by name. */
  readonly #quiet = new Map<string, number>()
  readonly #wake = new Wake()

  constructor(deps: ReleasesDeps) {
    this.#deps = deps
  }

  /** Notes that the Reconcilers have changed. */
  poke(): void {
    this.#wake.poke()
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const leaving = this.#deps.leaving()
      for (const object of leaving) await this.#consider(object, signal)
      if (leaving.length > 0) await pause(LOOK_EVERY_MS, signal)
      else await this.#wake.next(IDLE_MS, signal)
    }
  }

  async #consider(object: KubeObject, signal: AbortSignal): Promise<void> {
    const { name } = object.metadata
    const { queue, log } = this.#deps
    try {
      const looks = (await queue.isServed(name)) ? 0 : (this.#quiet.get(name) ?? 0) + 1
      this.#quiet.set(name, looks)
      if (looks < QUIET_LOOKS) return
      await this.#release(object, signal)
      this.#quiet.delete(name)
    } catch (error) {
      // The next version of the Reconciler decides.
      if (signal.aborted || isNotFound(error) || isConflict(error)) return
      log.warn({ err: error, reconciler: name }, 'the Reconciler could not be released yet')
    }
  }

  /** The patch has the version that was read, so it never overwrites what another bridge has written meanwhile. */
  async #release(object: KubeObject, signal: AbortSignal): Promise<void> {
    const { kube, log, now, shard } = this.#deps
    const { name, uid, resourceVersion } = object.metadata
    const path = resourcePath(RECONCILERS, undefined, name, 'status')
    const status = releasedStatus(object, shard, now())
    await kube.patch(path, { metadata: { uid, resourceVersion }, status }, 'merge', {
      fieldManager: 'fairlead-bridge',
      signal,
    })
    log.info({ reconciler: name }, 'this Reconciler is released: another shard serves it')
  }
}
