/**
 * Runs tasks concurrently, but those of one key one after the other, in order. At most `limit` tasks are admitted at
 * once, including those that wait, so that the caller is slowed down. Tasks must not reject.
 */
export class KeyedLimiter {
  readonly #limit: number
  readonly #tails = new Map<string, Promise<void>>()
  #active = 0
  #waiters: (() => void)[] = []

  constructor(limit: number) {
    this.#limit = limit
  }

  /** The number of tasks that are admitted and not finished. */
  get active(): number {
    return this.#active
  }

  /** Resolves when the task has been admitted. The task may end later. */
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

  /** Resolves when every task that was admitted before the call has ended. */
  async idle(): Promise<void> {
    await Promise.all(this.#tails.values())
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
