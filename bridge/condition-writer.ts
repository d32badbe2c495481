import { apiVersionOf, type KubeObject, type RunLog } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { pause } from '#primitives'
import { RECONCILERS } from '#spec'
import { areSame, type BridgeCondition, storedConditions, withTransition } from './conditions.ts'

export interface ConditionWriterDeps {
  kube: KubeClient
  log: RunLog
  now: () => Date
  /** The Reconcilers as last seen, each with what should be said of it now. */
  conditions: () => { object: KubeObject; conditions: BridgeCondition[] }[]
}

const AT_MOST_EVERY_MS = 500
const RETRY_MS = 2000
const FIELD_MANAGER = 'fairlead-bridge'

/**
 * Keeps the conditions Synced and Overlapping of the Reconcilers. Each bridge says a thing once, when it becomes so, and
 * not again when another one contradicts it: two that disagree do not write for ever.
 */
export class ConditionWriter {
  readonly #deps: ConditionWriterDeps
  readonly #said = new Map<string, BridgeCondition[]>()
  #wake = () => {}
  #isDirty = false

  constructor(deps: ConditionWriterDeps) {
    this.#deps = deps
  }

  /** Something that conditions depend on has changed. */
  poke(): void {
    this.#isDirty = true
    this.#wake()
  }

  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener('abort', () => this.#wake(), { once: true })
    while (!signal.aborted) {
      if (!this.#isDirty) await new Promise<void>((resolve) => (this.#wake = resolve))
      if (signal.aborted) return
      // What passes by within this time is not said at all.
      await pause(AT_MOST_EVERY_MS, signal)
      this.#isDirty = false
      if (await this.#sayAll(signal)) continue
      this.#isDirty = true
      await pause(RETRY_MS, signal)
    }
  }

  /** False: something has to be said again. */
  async #sayAll(signal: AbortSignal): Promise<boolean> {
    const conditions = this.#deps.conditions()
    const uids = new Set(conditions.map(({ object }) => object.metadata.uid))
    for (const uid of this.#said.keys()) if (!uids.has(uid)) this.#said.delete(uid)
    let isSaid = true
    for (const { object, conditions: said } of conditions) isSaid = (await this.#say(object, said, signal)) && isSaid
    return isSaid
  }

  async #say(object: KubeObject, conditions: BridgeCondition[], signal: AbortSignal): Promise<boolean> {
    const { name, uid = '' } = object.metadata
    const said = this.#said.get(uid)
    if (said !== undefined && areSame(said, conditions)) return true
    const before = storedConditions(object)
    try {
      // What it last said here may not be in sight yet.
      if (said !== undefined || !areSame(before, conditions)) await this.#apply(object, conditions, before, signal)
      this.#said.set(uid, conditions)
      return true
    } catch (error) {
      // With the next version of the object comes another occasion.
      if (signal.aborted || isNotFound(error) || isConflict(error)) return true
      this.#deps.log.warn({ err: error, reconciler: name }, 'conditions of the Reconciler could not be written yet')
      return false
    }
  }

  /** A condition that is left out is removed. */
  async #apply(
    { kind, metadata: { name, uid } }: KubeObject,
    conditions: BridgeCondition[],
    before: ReturnType<typeof storedConditions>,
    signal: AbortSignal,
  ): Promise<void> {
    const stored = conditions.map((condition) => {
      const same = before.find(({ type }) => type === condition.type)
      return withTransition(condition, same, this.#deps.now())
    })
    const patch = {
      apiVersion: apiVersionOf(RECONCILERS),
      kind,
      metadata: { name, ...(uid !== undefined && { uid }) },
      status: { conditions: stored },
    }
    const path = resourcePath(RECONCILERS, undefined, name)
    await this.#deps.kube.applyStatus(path, patch, { fieldManager: FIELD_MANAGER, force: true, signal })
  }
}
