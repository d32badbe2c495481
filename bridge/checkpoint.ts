/**
 * How far a stream of changes is done when they are finished out of order: the last position with nothing unfinished
 * before it. Changes without a position of their own (those of a list, which come in any order) only hold it back.
 */
export class Checkpoint<Position> {
  readonly #pending: { position: Position | undefined; done: boolean }[] = []
  #safe: Position | undefined

  /** Undefined until a first position was reached. */
  get safe(): Position | undefined {
    return this.#safe
  }

  /** The last position that has begun. */
  get latest(): Position | undefined {
    return this.#pending.findLast(({ position }) => position !== undefined)?.position ?? this.#safe
  }

  /** Begins one change, in the order of the stream; call what it returns when the change is finished. */
  begin(position?: Position): () => void {
    const entry = { position, done: false }
    this.#pending.push(entry)
    return () => {
      entry.done = true
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
    const unfinished = this.#pending.findIndex(({ done }) => !done)
    const finished = this.#pending.splice(0, unfinished === -1 ? this.#pending.length : unfinished)
    this.#safe = finished.findLast(({ position }) => position !== undefined)?.position ?? this.#safe
  }
}
