import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { BoundedMap } from '#primitives'
import { PAUSED_ANNOTATION, type ReconcilerSpec } from '#spec'

type Predicate = NonNullable<ReconcilerSpec['changes']>[number]

/** The number of remembered objects. Each takes one string. */
const REMEMBERED_AT_MOST = 65_536

/**
 * Decides what an update has changed, if this process has observed the version before it. An unknown version counts as
 * changed: an unnecessary run does no harm, but a missing one would.
 */
export class UpdatePredicates {
  readonly #known = new BoundedMap<string, string>(REMEMBERED_AT_MOST)

  /** Whether an update passes one of these predicates of spec.changes. */
  hasChanged(id: string, object: KubeObject, predicates: readonly Predicate[]): boolean {
    const before = this.#known.get(id)?.split(' ')
    if (before === undefined) return true
    const now = digest(object).split(' ')
    return (
      ALWAYS.some((at) => before[at] !== now[at]) ||
      predicates.some((predicate) => isUnknown(predicate, object) || before[AT[predicate]] !== now[AT[predicate]])
    )
  }

  /** Remembers a version after all its keys were enqueued. */
  remember(id: string, object: KubeObject | undefined): void {
    if (object === undefined) this.#known.delete(id)
    else this.#known.set(id, digest(object))
  }
}

/**
 * An object without a generation, such as a ConfigMap, Secret or Namespace, may have changed its content in any update.
 */
const isUnknown = (predicate: Predicate, { metadata }: KubeObject): boolean =>
  predicate === 'Generation' && metadata.generation === undefined

const AT: Record<Predicate, number> = { Generation: 2, Labels: 3, Annotations: 4 }
/**
 * Fields that count for every predicate: another object of the name, the beginning of a deletion, and the beginning or
 * end of a pause.
 */
const ALWAYS = [0, 1, 5]

function digest({ metadata }: KubeObject): string {
  const { uid, deletionTimestamp, generation, labels, annotations } = metadata
  const pause = annotations?.[PAUSED_ANNOTATION] === 'true' ? 'paused' : '-'
  return [uid, deletionTimestamp ?? '-', generation, digestOf(labels), digestOf(annotations), pause].join(' ')
}

/** Returns a digest of a map. The API server sends its entries in order. */
const digestOf = (map: object | undefined): string => hash('sha1', JSON.stringify(map ?? {}), 'base64url').slice(0, 12)
