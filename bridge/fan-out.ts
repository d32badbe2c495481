/**
 * An action for all keys. Callers during a round share the next round, which begins after it and is the action of the
 * last caller. A thousand changes at once cause two rounds, and a complete round follows each change.
 */
export class FanOut {
  #round: () => Promise<void>
  #current: Promise<void> | undefined
  #next: Promise<void> | undefined

  constructor(round: () => Promise<void>) {
    this.#round = round
  }

  get isIdle(): boolean {
    return this.#current === undefined && this.#next === undefined
  }

  run(round = this.#round): Promise<void> {
    this.#round = round
    if (this.#current === undefined) return this.#start()
    this.#next ??= this.#current
      .catch(() => undefined)
      .then(() => {
        this.#next = undefined
        return this.#start()
      })
    return this.#next
  }

  #start(): Promise<void> {
    const round = this.#round().finally(() => {
      if (this.#current === round) this.#current = undefined
    })
    this.#current = round
    return round
  }
}

/** Actions by name. An entry is removed when its rounds have ended. */
export class FanOuts {
  readonly #known = new Map<string, FanOut>()

  run(name: string, round: () => Promise<void>): Promise<void> {
    const fanOut = this.#known.get(name) ?? new FanOut(round)
    this.#known.set(name, fanOut)
    return fanOut.run(round).finally(() => {
      if (fanOut.isIdle && this.#known.get(name) === fanOut) this.#known.delete(name)
    })
  }
}
