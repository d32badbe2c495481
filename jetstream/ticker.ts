/** A timer that all periodic checks share. It runs while there are listeners. */
export class Ticker {
  readonly #everyMs: number
  readonly #listeners = new Set<() => void>()
  #timer: NodeJS.Timeout | undefined

  constructor(everyMs: number) {
    this.#everyMs = everyMs
  }

  /** Calls the listener at each tick. Returns a function that removes the listener. */
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
