/** The waiting items of several parties. The parties take turns: each take() returns an item of the next party. */
export class Turns<Item> {
  /** Items by party and rank. The next party is the first entry. A party without items has no entry. */
  readonly #waiting = new Map<string, Item[][]>()
  #size = 0

  get size(): number {
    return this.#size
  }

  sizeOf(party: string): number {
    return countOf(this.#waiting.get(party) ?? [])
  }

  /** Adds an item. Within one party, items of a lower rank are taken first. */
  add(party: string, item: Item, rank = 0): void {
    const lines = this.#waiting.get(party) ?? []
    while (lines.length <= rank) lines.push([])
    lines[rank]?.push(item)
    this.#waiting.set(party, lines)
    this.#size++
  }

  take(): Item | undefined {
    const [turn] = this.#waiting
    if (turn === undefined) return undefined
    const [party, lines] = turn
    const item = lines.find((line) => line.length > 0)?.shift()
    this.#waiting.delete(party)
    if (countOf(lines) > 0) this.#waiting.set(party, lines)
    this.#size--
    return item
  }

  remove(party: string, item: Item): void {
    const lines = this.#waiting.get(party) ?? []
    const line = lines.find((one) => one.includes(item))
    if (line === undefined) return
    line.splice(line.indexOf(item), 1)
    this.#size--
    if (countOf(lines) === 0) this.#waiting.delete(party)
  }

  /** Removes the first item of the party's lowest rank. */
  dropOldest(party: string): void {
    const oldest = this.#waiting.get(party)?.find((line) => line.length > 0)?.[0]
    if (oldest !== undefined) this.remove(party, oldest)
  }
}

const countOf = (lines: readonly unknown[][]): number => lines.reduce((sum, line) => sum + line.length, 0)
