import { type KubeObject, resourceName } from '#contracts'
import { NotStreamedError } from './list-objects.ts'
import { type ListedChange, type RelistPlan, relist } from './relist.ts'
import type { BridgeOptions, RelistReport } from './types.ts'

/**
 * Receives the objects of a resource from the API server, each after EVENTS has stored it, or if EVENTS can never store
 * it.
 */
export interface ResourceEventHandler {
  /** Called with all existing objects. */
  listed(objects: KubeObject[]): void
  changed(verb: 'added' | 'modified' | 'deleted', object: KubeObject): void
}

interface Sink {
  /** Resolves when there is room for the next one. */
  publish(found: ListedChange): Promise<void>
  /** Resolves when all published changes are stored. */
  stored(): Promise<void>
}

type ListerDeps = Pick<BridgeOptions, 'kube' | 'events' | 'log'> & { handler?: ResourceEventHandler | undefined }

/** Lists a resource as a stream until the server turns out not to support that, and then in pages. */
export class Lister {
  readonly #deps: ListerDeps
  #canStream = true

  constructor(deps: ListerDeps) {
    this.#deps = deps
  }

  async list(plan: RelistPlan, sink: Sink): Promise<RelistReport & { resourceVersion: string; streamed: boolean }> {
    const { kube, events, handler, log } = this.#deps
    const streamed = plan.stream && this.#canStream
    const objects = new Map<string | undefined, KubeObject>()
    const note = (object: KubeObject, isGone: boolean) =>
      isGone ? objects.delete(object.metadata.uid) : objects.set(object.metadata.uid, object)
    try {
      const publish = (found: ListedChange) => sink.publish(found)
      const report = await relist({ ...plan, stream: streamed }, { kube, events, publish, listed: handler && note })
      if (handler) await sink.stored()
      handler?.listed([...objects.values()])
      return { ...report, streamed }
    } catch (error) {
      if (!(error instanceof NotStreamedError)) throw error
      this.#canStream = false
      log.info({ resource: resourceName(plan.ref), detail: error.message }, 'lists come in pages')
      return this.list(plan, sink)
    }
  }
}
