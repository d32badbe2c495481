import { type KubeObject, resourceName } from '#contracts'
import { NotStreamedError } from './present.ts'
import { type Found, type RelistPlan, relist } from './relist.ts'
import type { BridgeOptions, RelistReport } from './types.ts'

/** Sees the objects of a resource as the API server tells them, stored or not. */
export interface Onlooker {
  /** All that there are. */
  listed(objects: KubeObject[]): void
  changed(verb: 'added' | 'modified' | 'deleted', object: KubeObject): void
}

type ListerDeps = Pick<BridgeOptions, 'kube' | 'events' | 'log'> & { onlooker?: Onlooker | undefined }

/** Lists a resource as a stream until its server turns out not to do that, then in pages. */
export class Lister {
  readonly #deps: ListerDeps
  #canStream = true

  constructor(deps: ListerDeps) {
    this.#deps = deps
  }

  async list(
    plan: RelistPlan,
    publish: (found: Found) => Promise<void>,
  ): Promise<RelistReport & { resourceVersion: string; streamed: boolean }> {
    const { kube, events, onlooker, log } = this.#deps
    const streamed = plan.stream && this.#canStream
    const objects = new Map<string | undefined, KubeObject>()
    const note = (object: KubeObject, isGone: boolean) =>
      isGone ? objects.delete(object.metadata.uid) : objects.set(object.metadata.uid, object)
    try {
      const report = await relist({ ...plan, stream: streamed }, { kube, events, publish, listed: onlooker && note })
      onlooker?.listed([...objects.values()])
      return { ...report, streamed }
    } catch (error) {
      if (!(error instanceof NotStreamedError)) throw error
      this.#canStream = false
      log.info({ resource: resourceName(plan.ref), detail: error.message }, 'lists come in pages')
      return this.list(plan, publish)
    }
  }
}
