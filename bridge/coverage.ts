/** The Reconcilers, by coverage ID, for which all objects that a watch has read are stored and enqueued. */
export class Coverage {
  #covers: ReadonlySet<string> = new Set()
  /** The Reconcilers that the list in progress will cover. */
  #listing: ReadonlySet<string> = new Set()

  get ids(): ReadonlySet<string> {
    return this.#covers
  }

  /** Begins with the coverage of a cursor. */
  resume(said: readonly string[], wanted: readonly string[]): void {
    this.#covers = new Set(wanted.filter((id) => said.includes(id)))
  }

  /** Restricts the coverage to the Reconcilers that are wanted from now on. */
  restrictTo(wanted: readonly string[]): void {
    this.#covers = new Set(wanted.filter((id) => this.#covers.has(id)))
  }

  /** Forgets the coverage, because NATS may have lost keys that were enqueued. */
  forget(): void {
    this.#covers = new Set()
  }

  covers(wanted: readonly string[]): boolean {
    return wanted.every((id) => this.#covers.has(id))
  }

  /** Whether all of them are covered at the end of the list in progress. */
  willCover(wanted: readonly string[]): boolean {
    return wanted.every((id) => this.#covers.has(id) || this.#listing.has(id))
  }

  /** Begins a list for these Reconcilers. Returns whether the list must enqueue every key of a Reconciler. */
  beginList(wanted: readonly string[]): (coverageId: string) => boolean {
    const covers = this.#covers
    this.#listing = new Set(wanted)
    return (id) => !covers.has(id)
  }

  /** Ends the list. `wanted`: the Reconcilers that are wanted now. Left out: the list was interrupted. */
  endList(wanted?: readonly string[]): void {
    if (wanted) this.#covers = new Set(wanted.filter((id) => this.#listing.has(id)))
    this.#listing = new Set()
  }
}
