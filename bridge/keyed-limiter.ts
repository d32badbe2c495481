/**
 * Runs tasks side by side, but those of one key one after the other in the order they came, and never more than
 * `limit` at once (waiting ones included): who feeds it is held back. Tasks must not reject.
 */
export class KeyedLimiter {
  readonly #limit: number
  readonly #tails = new Map<string, Promise<void>>()
  #active = 0
  #waiters: (() => void)[] = []

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Tasks admitted and not finished. */
  get active(): number {
    return this.#active
  }

  /** Resolves when the task has been admitted, not when it is done. */
  async admit(key: string, task: () => Promise<void>): Promise<void> {
    while (this.#active >= this.#limit) await this.#nextEnd()
    this.#active++
    const tail = this.#runAfter(this.#tails.get(key), task).then(() => {
      this.#active--
      if (this.#tails.get(key) === tail) this.#tails.delete(key)
      this.#wake()
    })
    this.#tails.set(key, tail)
  }

  /** Resolves when nothing is admitted any more. */
  async idle(): Promise<void> {
    while (this.#active > 0) await this.#nextEnd()
  }

  async #runAfter(before: Promise<void> | undefined, task: () => Promise<void>): Promise<void> {
    await before
    await task()
  }

  #nextEnd(): Promise<void> {
    return new Promise((resolve) => this.#waiters.push(resolve))
  }

  #wake(): void {
    const waiters = this.#waiters
    this.#waiters = []
    for (const wake of waiters) wake()
  }
}
