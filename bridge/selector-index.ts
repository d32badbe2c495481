import type { KubeObject } from '#contracts'
import { labelsOfSelector } from '#spec'

/** Finds items by the labels of an object. Each item has a label selector, and a lookup checks few items. */
export class SelectorIndex<Item> {
  readonly #byLabel = new Map<string, Item[]>()
  /** Items that any labels may match. */
  readonly #others: Item[] = []

  /** Adds an item. If its selector requires several labels, the label with the fewest items so far finds it. */
  add(item: Item, selector: string | undefined): void {
    const count = (labels: readonly string[]) =>
      labels.reduce((sum, label) => sum + (this.#byLabel.get(label)?.length ?? 0), 0)
    const [labels] = labelsOfSelector(selector ?? '').toSorted((one, other) => count(one) - count(other))
    if (labels === undefined) this.#others.push(item)
    else for (const label of labels) append(this.#byLabel, label, item)
  }

  /** Returns all items whose selector may match. The selectors of some may not match. */
  candidates({ metadata: { labels = {} } }: KubeObject): Item[] {
    if (this.#byLabel.size === 0) return this.#others
    const found = Object.entries(labels).map(([key, value]) => this.#byLabel.get(`${key}=${value}`) ?? [])
    return [...this.#others, ...found.flat()]
  }
}

export function append<Key, Item>(lists: Map<Key, Item[]>, key: Key, item: Item): void {
  const list = lists.get(key)
  if (list) list.push(item)
  else lists.set(key, [item])
}
