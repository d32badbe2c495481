/** So many at once; whoever comes later waits, in order. */
export class Room {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(size: number) {
    this.#free = size
  }

  /** Resolves when there is room, with what to call on leaving. */
  async enter(): Promise<() => void> {
    if (this.#free > 0) this.#free--
    else await new Promise<void>((resolve) => this.#waiting.push(resolve))
    let isInside = true
    return () => {
      if (!isInside) return
      isInside = false
      const next = this.#waiting.shift()
      if (next) next()
      else this.#free++
    }
  }
}
