import { apiVersionOf, type KubeObject, type ResourceRef, type RunLog, resourceName } from '#contracts'
import { isConflict, isNotFound, type KubeClient, resourcePath } from '#kube'
import { pause, Wake } from '#primitives'
import { holderOf, NAMED_KINDS, nameOfShard, RECONCILERS, RELEASED, shardOf } from '#spec'
import type { Admission, AdmissionFailure } from './admission.ts'
import type { Reconciler, RefusedReconciler } from './reconcilers.ts'
import type { Registry } from './registry.ts'
import { type IsWatched, isInNamespaces } from './routing.ts'
import type { ResourceStatus } from './types.ts'

/** The bridge's condition of a Reconciler: whether its resources reach EVENTS and its keys reach its queue. */
export interface SyncedCondition {
  type: 'Synced'
  status: 'True' | 'False'
  reason: string
  message: string
  observedGeneration?: number
}

/** The condition that another Reconciler for the same objects owns the same kinds. Absent if there is none. */
export interface OverlappingCondition extends Omit<SyncedCondition, 'type'> {
  type: 'Overlapping'
}

/** The condition that a related kind, which a primary names, is not listed. Absent if all are. */
export interface NamedKindsCondition extends Omit<SyncedCondition, 'type'> {
  type: typeof NAMED_KINDS
}

/** The conditions of a Reconciler that the bridge writes. */
export type BridgeCondition = SyncedCondition | OverlappingCondition | NamedKindsCondition

type StoredCondition = BridgeCondition & { lastTransitionTime: string }

export function refusedCondition({ reason, message, object }: RefusedReconciler): SyncedCondition {
  return { type: 'Synced', status: 'False', reason, message, ...generationOf(object) }
}

const unpreparedCondition = (
  { object }: Pick<Reconciler, 'object'>,
  { reason, message }: AdmissionFailure,
): SyncedCondition => ({
  type: 'Synced',
  status: 'False',
  reason,
  message: `nothing is watched or queued for it: ${message}`,
  ...generationOf(object),
})

/**
 * Returns the condition Synced. It names the missing definition or permission. It ignores a watch that was interrupted
 * and is about to continue, and kinds that primaries name: users name these.
 */
export function servedCondition(reconciler: Reconciler, statusesOf: StatusesOf): SyncedCondition {
  const { spec, object } = reconciler
  const declared = spec.related.filter(({ kindPath }) => kindPath === undefined)
  const said = (status: 'True' | 'False', { reason, message }: Lack): SyncedCondition => ({
    type: 'Synced',
    status,
    reason,
    message,
    ...generationOf(object),
  })
  for (const ref of [spec.for, ...spec.owns, ...declared, ...(spec.patches ?? [])]) {
    const lack = lackOf(ref, reconciler, statusesOf)
    if (lack !== undefined) return said('False', lack)
  }
  return said('True', { reason: 'Watching', message: 'every resource is listed, and its changes arrive' })
}

/** Returns the condition that kinds, which primaries name, are not listed. It names each, and what is missing. */
function namedKindsCondition(
  reconciler: Reconciler,
  isWatched: IsWatched,
  statusesOf: StatusesOf,
): NamedKindsCondition | undefined {
  const named = reconciler.spec.related.filter((one) => one.kindPath !== undefined && isWatched(reconciler, one))
  const lacks = named.map((ref) => lackOf(ref, reconciler, statusesOf)).filter((one) => one !== undefined)
  const worst = lacks.find(({ reason }) => reason !== LISTING) ?? lacks[0]
  if (worst === undefined) return undefined
  const message = [...new Set(lacks.map((one) => one.message))].join('; ')
  return { type: NAMED_KINDS, status: 'False', reason: worst.reason, message, ...generationOf(reconciler.object) }
}

type StatusesOf = (ref: ResourceRef) => readonly ResourceStatus[]

interface Lack {
  reason: string
  message: string
}

const LISTING = 'Listing'

/** Returns why objects of the resource may be missing in EVENTS. Undefined: none are. */
function lackOf(ref: ResourceRef, { spec, coverageId }: Reconciler, statusesOf: StatusesOf): Lack | undefined {
  const name = resourceName(ref)
  const statuses = statusesOf(ref).filter(({ namespace }) => isInNamespaces(spec.for.namespaces, namespace))
  const failures = statuses.map(({ failure, namespace }) => ({ ...failure, where: inNamespace(namespace) }))
  if (failures.some(({ kind }) => kind === 'absent'))
    return { reason: 'ResourceNotFound', message: `${name} is not served by the API server: install its definition` }
  const forbidden = failures.find(({ kind }) => kind === 'forbidden')
  if (forbidden) {
    const message = `list and watch of ${name}${forbidden.where} are not allowed: ${forbidden.message}`
    return { reason: 'Forbidden', message }
  }
  const rejected = failures.find(({ kind }) => kind === 'rejected')
  if (rejected)
    return { reason: 'Rejected', message: `${name} cannot be listed and watched${rejected.where}: ${rejected.message}` }
  const isListed = statuses.length > 0 && statuses.every(({ covers }) => covers.includes(coverageId))
  return isListed ? undefined : { reason: LISTING, message: `${name} is not listed completely yet` }
}

/** Returns the status of a Reconciler that `shard` no longer serves, and the shard of its label does not serve yet. */
export function releasedStatus(object: KubeObject, shard: string, now: Date): object {
  const message = `${nameOfShard(shard)} has released it, and ${nameOfShard(shardOf(object))} has not taken it up yet`
  const reasons: Record<string, string> = { Synced: RELEASED, Ready: 'NotServed' }
  const { conditions = [] } = (object.status ?? {}) as { conditions?: StoredCondition[] }
  const released = conditions
    .filter(({ type }) => type !== 'Overlapping' && type !== NAMED_KINDS)
    .map((before) => {
      const reason = reasons[before.type]
      return reason === undefined
        ? before
        : withTransition({ ...before, status: 'False', reason, message }, before, now)
    })
  return { shard: null, conditions: released }
}

const inNamespace = (namespace: string | undefined): string => (namespace === undefined ? '' : ` in ${namespace}`)

/** Returns the conditions that the object has. */
export function storedConditions(object: KubeObject): StoredCondition[] {
  const { conditions = [] } = (object.status ?? {}) as { conditions?: StoredCondition[] }
  return ['Synced', 'Overlapping', NAMED_KINDS].flatMap(
    (wanted) => conditions.find(({ type }) => type === wanted) ?? [],
  )
}

const areSame = (some: readonly BridgeCondition[], others: readonly BridgeCondition[]): boolean =>
  some.length === others.length && some.every((one, index) => isSame(one, others[index]))

const isSame = (a: BridgeCondition, b: BridgeCondition | undefined): boolean =>
  a.type === b?.type &&
  a.status === b.status &&
  a.reason === b.reason &&
  a.message === b.message &&
  a.observedGeneration === b.observedGeneration

export function withTransition(
  condition: BridgeCondition,
  before: StoredCondition | undefined,
  now: Date,
): StoredCondition {
  const isKept = before?.status === condition.status
  return { ...condition, lastTransitionTime: isKept ? before.lastTransitionTime : now.toISOString() }
}

const generationOf = ({ metadata }: KubeObject): { observedGeneration?: number } =>
  metadata.generation === undefined ? {} : { observedGeneration: metadata.generation }

interface ConditionFacts {
  registry: Pick<Registry, 'served' | 'refused'>
  admission: Pick<Admission, 'failureOf'>
  overlaps: ReadonlyMap<Reconciler, OverlappingCondition>
  isWatched: IsWatched
  statusesOf: StatusesOf
  /** The shard of this bridge. */
  shard: string
}

/** Returns the conditions that the Reconcilers of this shard should have now. */
export function currentConditions({ registry, admission, overlaps, isWatched, statusesOf, shard }: ConditionFacts) {
  const refused = registry.refused.map(
    (entry): ReconcilerConditions => ({
      object: entry.object,
      conditions: [refusedCondition(entry)],
      shard: holderOf(entry.object) ?? shard,
    }),
  )
  const served = registry.served.map((entry): ReconcilerConditions => {
    const { object } = entry
    const failure = admission.failureOf(entry)
    const synced = failure === undefined ? servedCondition(entry, statusesOf) : unpreparedCondition(entry, failure)
    const named = failure === undefined ? namedKindsCondition(entry, isWatched, statusesOf) : undefined
    const conditions = [synced, overlaps.get(entry), named].filter((one) => one !== undefined)
    // The shard that holds the Reconciler stays, so that it can still release the Reconciler.
    return { object, conditions, shard: failure === undefined ? shard : (holderOf(object) ?? shard) }
  })
  return [...refused, ...served]
}

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
const WRITE_RETRY_MS = 2000
const FIELD_MANAGER = 'fairlead-bridge'

/**
 * Keeps the conditions Synced, Overlapping and NamedKinds of the Reconcilers. A bridge writes a condition once, when it becomes
 * true, and does not repeat it when another bridge of its shard overwrites it. Otherwise two bridges that disagree would
 * write for ever.
 */
export class ConditionWriter {
  readonly #deps: ConditionWriterDeps
  readonly #said = new Map<string, Said>()
  readonly #wake = new Wake()

  constructor(deps: ConditionWriterDeps) {
    this.#deps = deps
  }

  /** Notes that conditions may have changed. */
  poke(): void {
    this.#wake.poke()
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#wake.next(Number.POSITIVE_INFINITY, signal)
      // A condition that changes back within this time is not written.
      await pause(AT_MOST_EVERY_MS, signal)
      if (signal.aborted || (await this.#sayAll(signal))) continue
      this.#wake.poke()
      await pause(WRITE_RETRY_MS, signal)
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
    if (said !== undefined && isSameOutcome(said, saying) && !isOfOthers) return true
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

const isSameOutcome = (a: Said, b: Said): boolean => a.shard === b.shard && areSame(a.conditions, b.conditions)

/** The number of Reconcilers in a message, and of kinds of each. */
const NAMED = 5
const EVERYWHERE = '*'

type Kind = Pick<ResourceRef, 'group' | 'resource'>

/**
 * Returns the condition of each Reconciler that is for the same kind as another one, in a common namespace, and owns a
 * kind that the other one owns. Selectors are not compared: the bridge does not know whether any object matches both.
 */
export function overlapsOf(reconcilers: readonly Reconciler[]): Map<Reconciler, OverlappingCondition> {
  const sorted = reconcilers.toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const places = new Map<string, Reconciler[]>()
  for (const reconciler of sorted) {
    for (const { place } of placesOf(reconciler, ['', ...(reconciler.spec.for.namespaces ?? [EVERYWHERE])])) {
      const there = places.get(place)
      if (there) there.push(reconciler)
      else places.set(place, [reconciler])
    }
  }
  const overlaps = new Map<Reconciler, OverlappingCondition>()
  for (const reconciler of sorted) {
    const { namespaces } = reconciler.spec.for
    const kinds = new Map<Reconciler, Set<string>>()
    for (const { place, owned } of placesOf(reconciler, namespaces ? [EVERYWHERE, ...namespaces] : [''])) {
      // The Reconciler itself may be among them. One more than the limit makes the message mention that there are
      // others.
      const there = places.get(place)?.slice(0, NAMED + 2) ?? []
      for (const other of there)
        if (other !== reconciler) kinds.set(other, (kinds.get(other) ?? new Set()).add(nameOf(owned)))
    }
    if (kinds.size > 0) overlaps.set(reconciler, conditionOf(reconciler, kinds))
  }
  return overlaps
}

/** Returns each kind that a Reconciler owns, in each of these namespaces. '' stands for any namespace. */
const placesOf = ({ spec }: Reconciler, namespaces: readonly string[]) =>
  spec.owns.flatMap((owned) =>
    namespaces.map((namespace) => ({ owned, place: `${nameOf(spec.for)} ${nameOf(owned)} ${namespace}` })),
  )

function conditionOf(
  { spec, object }: Reconciler,
  kinds: ReadonlyMap<Reconciler, ReadonlySet<string>>,
): OverlappingCondition {
  const others = [...kinds].sort(([a], [b]) => (a.name < b.name ? -1 : 1))
  const named = listed(others.map(([{ name }, owned]) => `${name} (${listed([...owned].sort())})`))
  const isSelective = [spec, ...others.map(([other]) => other.spec)].some(
    ({ for: primary }) => primary.selector !== undefined || primary.fieldSelector !== undefined,
  )
  const where = isSelective ? ' Objects that only one of their selectors matches are not concerned.' : ''
  const { generation } = object.metadata
  return {
    type: 'Overlapping',
    status: 'True',
    reason: 'SameKinds',
    message: `other Reconcilers for ${nameOf(spec.for)} own the same kinds: ${named}. Each one prunes and repairs only what it has created; a name that two of them want stays with the first.${where}`,
    ...(generation !== undefined && { observedGeneration: generation }),
  }
}

const listed = (items: readonly string[]): string =>
  items.slice(0, NAMED).join(', ') + (items.length > NAMED ? ' and others' : '')

const nameOf = ({ group, resource }: Kind): string => (group === '' ? resource : `${resource}.${group}`)
