/** For which Reconcilers, by token, everything that a watch has read is stored and enqueued. */
export class Coverage {
  #covers: ReadonlySet<string> = new Set()
  /** Those that a list under way will cover. */
  #listing: ReadonlySet<string> = new Set()
  /** Those that were ever covered: their keys may have run. */
  #met: ReadonlySet<string> = new Set()

  get tokens(): ReadonlySet<string> {
    return this.#covers
  }

  /** What a cursor says; one of another life of NATS proves nothing but that they were covered once. */
  resume(said: readonly string[] | undefined, isSameLife: boolean, wanted: readonly string[]): void {
    this.#met = new Set(said)
    this.#covers = new Set(isSameLife ? wanted.filter((token) => this.#met.has(token)) : [])
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

  /** A list begins, for these; returns who of them were never covered. */
  beginList(wanted: readonly string[]): (token: string) => boolean {
    const met = this.#met
    this.#listing = new Set(wanted)
    return (token) => !met.has(token)
  }

  /** `wanted`: by now. Without it, the list was broken off. */
  endList(wanted?: readonly string[]): void {
    if (wanted) this.#covers = new Set(wanted.filter((token) => this.#listing.has(token)))
    if (wanted) this.#met = new Set([...this.#met, ...this.#covers])
    this.#listing = new Set()
  }
}
