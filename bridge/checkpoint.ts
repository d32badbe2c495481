/**
 * The last position of a stream before which every change is safe. Changes may become safe in any order. A change
 * without a position, such as an object of a list, only holds the position back.
 */
export class Checkpoint<Position> {
  readonly #pending: { position: Position | undefined; isSafe: boolean }[] = []
  #safe: Position | undefined

  /** The last safe position. Undefined until the first one is reached. */
  get safe(): Position | undefined {
    return this.#safe
  }

  /** The last position that has begun. */
  get latest(): Position | undefined {
    return this.#pending.findLast(({ position }) => position !== undefined)?.position ?? this.#safe
  }

  /** Begins one change, in the order of the stream. Returns a function to call when the change is safe. */
  begin(position?: Position): () => void {
    const entry = { position, isSafe: false }
    this.#pending.push(entry)
    return () => {
      entry.isSafe = true
      this.#advance()
    }
  }

  /** Notes a position that is not a change: a bookmark, or the end of a list. */
  mark(position: Position): void {
    this.begin(position)()
  }

  /** Forgets the positions that were reached or begun. Changes in progress still hold back later positions. */
  void(): void {
    for (const entry of this.#pending) entry.position = undefined
    this.#safe = undefined
  }

  #advance(): void {
    const unsafe = this.#pending.findIndex(({ isSafe }) => !isSafe)
    const safe = this.#pending.splice(0, unsafe === -1 ? this.#pending.length : unsafe)
    this.#safe = safe.findLast(({ position }) => position !== undefined)?.position ?? this.#safe
  }
}
