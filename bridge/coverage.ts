/** For which Reconcilers, by token, everything that a watch has read is stored and enqueued. */
export class Coverage {
  #covers: ReadonlySet<string> = new Set()
  /** Those that a list under way will cover. */
  #listing: ReadonlySet<string> = new Set()

  get tokens(): ReadonlySet<string> {
    return this.#covers
  }

  /** What a cursor says. */
  resume(said: readonly string[], wanted: readonly string[]): void {
    this.#covers = new Set(wanted.filter((token) => said.includes(token)))
  }

  /** Others are wanted from now on. */
  restrictTo(wanted: readonly string[]): void {
    this.#covers = new Set(wanted.filter((token) => this.#covers.has(token)))
  }

  /** NATS may have lost what was enqueued. */
  forget(): void {
    this.#covers = new Set()
  }

  covers(wanted: readonly string[]): boolean {
    return wanted.every((token) => this.#covers.has(token))
  }

  /** As covers(), once the list under way is through. */
  willCover(wanted: readonly string[]): boolean {
    return wanted.every((token) => this.#covers.has(token) || this.#listing.has(token))
  }

  /** A list begins, for these; returns who is owed a run of every key by it. */
  beginList(wanted: readonly string[]): (token: string) => boolean {
    const covers = this.#covers
    this.#listing = new Set(wanted)
    return (token) => !covers.has(token)
  }

  /** `wanted`: by now. Without it, the list was broken off. */
  endList(wanted?: readonly string[]): void {
    if (wanted) this.#covers = new Set(wanted.filter((token) => this.#listing.has(token)))
    this.#listing = new Set()
  }
}
