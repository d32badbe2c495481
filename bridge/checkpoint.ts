/**
 * How far a stream of changes is safe when they become so out of order: the last position with nothing unsafe before it.
 * Changes without a position of their own (those of a list, which come in any order) only hold it back.
 */
export class Checkpoint<Position> {
  readonly #pending: { position: Position | undefined; isSafe: boolean }[] = []
  #safe: Position | undefined

  /** Undefined until a first position was reached. */
  get safe(): Position | undefined {
    return this.#safe
  }

  /** The last position that has begun. */
  get latest(): Position | undefined {
    return this.#pending.findLast(({ position }) => position !== undefined)?.position ?? this.#safe
  }

  /** Begins one change, in the order of the stream; call what it returns when the change is safe. */
  begin(position?: Position): () => void {
    const entry = { position, isSafe: false }
    this.#pending.push(entry)
    return () => {
      entry.isSafe = true
      this.#advance()
    }
  }

  /** A position without a change of its own: a bookmark, or the end of a list. */
  mark(position: Position): void {
    this.begin(position)()
  }

  /** Forgets the positions that were reached or begun. Changes under way still hold back later positions. */
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
