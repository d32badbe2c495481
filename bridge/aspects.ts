import { hash } from 'node:crypto'
import type { KubeObject } from '#contracts'
import { PAUSED_ANNOTATION, type ReconcilerSpec } from '#spec'

type Aspect = NonNullable<ReconcilerSpec['changes']>[number]

/** As one string per object. */
const REMEMBERED_AT_MOST = 65_536

/**
 * What an update has changed, as far as this process has seen the version before it. What is not known counts as changed:
 * a run too many does no harm, one too few would.
 */
export class Aspects {
  readonly #known = new Map<string, string>()

  /** Whether an update counts for who looks at these aspects only. */
  hasChanged(id: string, object: KubeObject, aspects: readonly Aspect[]): boolean {
    const before = this.#known.get(id)?.split(' ')
    if (before === undefined) return true
    const now = digest(object).split(' ')
    return (
      ALWAYS.some((at) => before[at] !== now[at]) ||
      aspects.some((aspect) => isUnknown(aspect, object) || before[AT[aspect]] !== now[AT[aspect]])
    )
  }

  /** All that this version is to cause has been caused. */
  remember(id: string, object: KubeObject | undefined): void {
    this.#known.delete(id)
    if (object === undefined) return
    this.#known.set(id, digest(object))
    if (this.#known.size <= REMEMBERED_AT_MOST) return
    const [oldest] = this.#known.keys()
    if (oldest !== undefined) this.#known.delete(oldest)
  }
}

/** ConfigMaps, Secrets and Namespaces, among others, have no generation: whatever was updated may be their content. */
const isUnknown = (aspect: Aspect, { metadata }: KubeObject): boolean =>
  aspect === 'Generation' && metadata.generation === undefined

const AT: Record<Aspect, number> = { Generation: 2, Labels: 3, Annotations: 4 }
/** Another object of that name, the beginning of its deletion, and of a pause or its end. */
const ALWAYS = [0, 1, 5]

function digest({ metadata }: KubeObject): string {
  const { uid, deletionTimestamp, generation, labels, annotations } = metadata
  const pause = annotations?.[PAUSED_ANNOTATION] === 'true' ? 'paused' : '-'
  return [uid, deletionTimestamp ?? '-', generation, digestOf(labels), digestOf(annotations), pause].join(' ')
}

/** The API server sends the entries of a map in order. */
const digestOf = (map: object | undefined): string => hash('sha1', JSON.stringify(map ?? {}), 'base64url').slice(0, 12)
