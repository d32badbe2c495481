interface SemaphoreOptions {
  /**
   * The number of holders that are admitted in one turn of the event loop. Default: as many as there are free permits.
   */
  perTurn?: number
}

/** Limits how many tasks run at once. Later callers wait in order. */
export class Semaphore {
  readonly #perTurn: number
  readonly #waiting: (() => void)[] = []
  #free: number
  #admittedThisTurn = 0

  constructor(permits: number, { perTurn = Number.POSITIVE_INFINITY }: SemaphoreOptions = {}) {
    this.#free = permits
    this.#perTurn = perTurn
  }

  /** Resolves with a function that releases the permit. */
  async acquire(): Promise<() => void> {
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve)
      this.#admit()
    })
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.#free++
      this.#admit()
    }
  }

  #admit(): void {
    while (this.#free > 0 && this.#admittedThisTurn < this.#perTurn) {
      const next = this.#waiting.shift()
      if (!next) return
      if (this.#admittedThisTurn++ === 0) setImmediate(() => this.#nextTurn())
      this.#free--
      next()
    }
  }

  #nextTurn(): void {
    this.#admittedThisTurn = 0
    this.#admit()
  }
}
