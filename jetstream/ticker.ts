/** One timer for all that look around now and then. It runs while there are listeners. */
export class Ticker {
  readonly #everyMs: number
  readonly #listeners = new Set<() => void>()
  #timer: NodeJS.Timeout | undefined

  constructor(everyMs: number) {
    this.#everyMs = everyMs
  }

  /** Calls back at each tick, until the function returned is called. */
  on(listener: () => void): () => void {
    this.#listeners.add(listener)
    this.#timer ??= setInterval(() => this.#tick(), this.#everyMs)
    return () => this.#off(listener)
  }

  #tick(): void {
    for (const listener of this.#listeners) listener()
  }

  #off(listener: () => void): void {
    this.#listeners.delete(listener)
    if (this.#listeners.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}
