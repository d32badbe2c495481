import { apiVersionOf, type KubeObject, type RunLog } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { pause } from '#primitives'
import { holderOf, RECONCILERS } from '#spec'
import { areSame, type BridgeCondition, storedConditions, withTransition } from './conditions.ts'

export interface ConditionWriterDeps {
  kube: KubeClient
  log: RunLog
  now: () => Date
  /** The Reconcilers as last observed, each with the conditions that it should have now. */
  conditions: () => ReconcilerConditions[]
}

export interface ReconcilerConditions {
  object: KubeObject
  conditions: BridgeCondition[]
  /** The shard that holds the Reconciler. */
  shard: string
}

type Said = Omit<ReconcilerConditions, 'object'>

const AT_MOST_EVERY_MS = 500
const RETRY_MS = 2000
const FIELD_MANAGER = 'fairlead-bridge'

/**
 * Keeps the conditions Synced and Overlapping of the Reconcilers. A bridge writes a condition once, when it becomes
 * true, and does not repeat it when another bridge of its shard overwrites it. Otherwise two bridges that disagree would
 * write for ever.
 */
export class ConditionWriter {
  readonly #deps: ConditionWriterDeps
  readonly #said = new Map<string, Said>()
  #wake = () => {}
  #isDirty = false

  constructor(deps: ConditionWriterDeps) {
    this.#deps = deps
  }

  /** Notes that conditions may have changed. */
  poke(): void {
    this.#isDirty = true
    this.#wake()
  }

  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener('abort', () => this.#wake(), { once: true })
    while (!signal.aborted) {
      if (!this.#isDirty) await new Promise<void>((resolve) => (this.#wake = resolve))
      if (signal.aborted) return
      // A condition that changes back within this time is not written.
      await pause(AT_MOST_EVERY_MS, signal)
      this.#isDirty = false
      if (await this.#sayAll(signal)) continue
      this.#isDirty = true
      await pause(RETRY_MS, signal)
    }
  }

  /** Returns false if a write has to be repeated. */
  async #sayAll(signal: AbortSignal): Promise<boolean> {
    const conditions = this.#deps.conditions()
    const uids = new Set(conditions.map(({ object }) => object.metadata.uid))
    for (const uid of this.#said.keys()) if (!uids.has(uid)) this.#said.delete(uid)
    let isSaid = true
    for (const { object, ...said } of conditions) isSaid = (await this.#say(object, said, signal)) && isSaid
    return isSaid
  }

  async #say(object: KubeObject, saying: Said, signal: AbortSignal): Promise<boolean> {
    const { name, uid = '' } = object.metadata
    const said = this.#said.get(uid)
    const before = storedConditions(object)
    const isOfOthers = before.length > 0 && holderOf(object) !== saying.shard
    if (said !== undefined && isSame(said, saying) && !isOfOthers) return true
    try {
      // The last write of this bridge may not be visible in `object` yet.
      if (said !== undefined || isOfOthers || !areSame(before, saying.conditions))
        await this.#apply(object, saying, before, signal)
      this.#said.set(uid, saying)
      return true
    } catch (error) {
      // The next version of the object causes another attempt.
      if (signal.aborted || isNotFound(error) || isConflict(error)) return true
      this.#deps.log.warn({ err: error, reconciler: name }, 'conditions of the Reconciler could not be written yet')
      return false
    }
  }

  /** Applies the conditions. A condition that is left out is removed. */
  async #apply(
    { kind, metadata: { name, uid } }: KubeObject,
    { conditions, shard }: Said,
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
      // A definition of an earlier version does not have the field.
      status: { conditions: stored, ...(shard !== '' && { shard }) },
    }
    const path = resourcePath(RECONCILERS, undefined, name)
    await this.#deps.kube.applyStatus(path, patch, { fieldManager: FIELD_MANAGER, force: true, signal })
  }
}

const isSame = (a: Said, b: Said): boolean => a.shard === b.shard && areSame(a.conditions, b.conditions)
