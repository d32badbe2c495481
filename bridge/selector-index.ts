import type { KubeObject } from '#contracts'
import { labelsOfSelector } from '#spec'

/** What selects objects by their labels, found by the labels of an object: few of them are looked at. */
export class SelectorIndex<Item> {
  readonly #byLabel = new Map<string, Item[]>()
  /** Any labels may match. */
  readonly #others: Item[] = []

  /** Of several labels that it demands, it is found by the one that the fewest have demanded so far. */
  add(item: Item, selector: string | undefined): void {
    const count = (labels: readonly string[]) =>
      labels.reduce((sum, label) => sum + (this.#byLabel.get(label)?.length ?? 0), 0)
    const [labels] = labelsOfSelector(selector ?? '').toSorted((one, other) => count(one) - count(other))
    if (labels === undefined) this.#others.push(item)
    else for (const label of labels) append(this.#byLabel, label, item)
  }

  /** All whose selector may match, and perhaps some whose selector does not. */
  candidates({ metadata: { labels = {} } }: KubeObject): Item[] {
    if (this.#byLabel.size === 0) return this.#others
    const found = Object.entries(labels).map(([key, value]) => this.#byLabel.get(`${key}=${value}`) ?? [])
    return [...this.#others, ...found.flat()]
  }
}

/** Adds to the list of a key. */
export function append<Key, Item>(lists: Map<Key, Item[]>, key: Key, item: Item): void {
  const list = lists.get(key)
  if (list) list.push(item)
  else lists.set(key, [item])
}
