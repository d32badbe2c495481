interface RoomOptions {
  /** How many come in during one turn of the event loop. Default: as many as there is room for. */
  perTurn?: number
}

/** So many at once; whoever comes later waits, in order. */
export class Room {
  readonly #perTurn: number
  readonly #waiting: (() => void)[] = []
  #free: number
  #cameThisTurn = 0

  constructor(size: number, { perTurn = Number.POSITIVE_INFINITY }: RoomOptions = {}) {
    this.#free = size
    this.#perTurn = perTurn
  }

  /** Resolves when there is room, with what to call on leaving. */
  async enter(): Promise<() => void> {
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve)
      this.#admit()
    })
    let isInside = true
    return () => {
      if (!isInside) return
      isInside = false
      this.#free++
      this.#admit()
    }
  }

  #admit(): void {
    while (this.#free > 0 && this.#cameThisTurn < this.#perTurn) {
      const next = this.#waiting.shift()
      if (!next) return
      if (this.#cameThisTurn++ === 0) setImmediate(() => this.#nextTurn())
      this.#free--
      next()
    }
  }

  #nextTurn(): void {
    this.#cameThisTurn = 0
    this.#admit()
  }
}
