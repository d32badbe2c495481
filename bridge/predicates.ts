import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { BoundedMap } from '#primitives'
import { PAUSED_ANNOTATION, type ReconcilerSpec } from '#spec'

type Predicate = NonNullable<ReconcilerSpec['changes']>[number]

/** As one string per object. */
const REMEMBERED_AT_MOST = 65_536

/**
 * What an update has changed, as far as this process has seen the version before it. What is not known counts as changed:
 * a run too many does no harm, one too few would.
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

  /** All that this version is to cause has been caused. */
  remember(id: string, object: KubeObject | undefined): void {
    if (object === undefined) this.#known.delete(id)
    else this.#known.set(id, digest(object))
  }
}

/** ConfigMaps, Secrets and Namespaces, among others, have no generation: whatever was updated may be their content. */
const isUnknown = (predicate: Predicate, { metadata }: KubeObject): boolean =>
  predicate === 'Generation' && metadata.generation === undefined

const AT: Record<Predicate, number> = { Generation: 2, Labels: 3, Annotations: 4 }
/** Another object of that name, the beginning of its deletion, and of a pause or its end. */
const ALWAYS = [0, 1, 5]

function digest({ metadata }: KubeObject): string {
  const { uid, deletionTimestamp, generation, labels, annotations } = metadata
  const pause = annotations?.[PAUSED_ANNOTATION] === 'true' ? 'paused' : '-'
  return [uid, deletionTimestamp ?? '-', generation, digestOf(labels), digestOf(annotations), pause].join(' ')
}

/** The API server sends the entries of a map in order. */
const digestOf = (map: object | undefined): string => hash('sha1', JSON.stringify(map ?? {}), 'base64url').slice(0, 12)
