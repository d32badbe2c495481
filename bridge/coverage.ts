/** For which Reconcilers, by coverage ID, everything that a watch has read is stored and enqueued. */
export class Coverage {
  #covers: ReadonlySet<string> = new Set()
  /** Those that a list under way will cover. */
  #listing: ReadonlySet<string> = new Set()

  get ids(): ReadonlySet<string> {
    return this.#covers
  }

  /** What a cursor says. */
  resume(said: readonly string[], wanted: readonly string[]): void {
    this.#covers = new Set(wanted.filter((id) => said.includes(id)))
  }

  /** Others are wanted from now on. */
  restrictTo(wanted: readonly string[]): void {
    this.#covers = new Set(wanted.filter((id) => this.#covers.has(id)))
  }

  /** NATS may have lost what was enqueued. */
  forget(): void {
    this.#covers = new Set()
  }

  covers(wanted: readonly string[]): boolean {
    return wanted.every((id) => this.#covers.has(id))
  }

  /** As covers(), once the list under way is through. */
  willCover(wanted: readonly string[]): boolean {
    return wanted.every((id) => this.#covers.has(id) || this.#listing.has(id))
  }

  /** A list begins, for these; returns who is owed a run of every key by it. */
  beginList(wanted: readonly string[]): (coverageId: string) => boolean {
    const covers = this.#covers
    this.#listing = new Set(wanted)
    return (id) => !covers.has(id)
  }

  /** `wanted`: by now. Without it, the list was broken off. */
  endList(wanted?: readonly string[]): void {
    if (wanted) this.#covers = new Set(wanted.filter((id) => this.#listing.has(id)))
    this.#listing = new Set()
  }
}
