/**
 * An action for all keys. Callers during a round share the next round, which begins after it. A thousand changes at
 * once cause two rounds, and a complete round follows each change.
 */
export class FanOut {
  readonly #round: () => Promise<void>
  #current: Promise<void> | undefined
  #next: Promise<void> | undefined

  constructor(round: () => Promise<void>) {
    this.#round = round
  }

  run(): Promise<void> {
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

/** Actions by name. An entry is removed when its round has ended. */
export class FanOuts {
  readonly #known = new Map<string, FanOut>()

  run(name: string, round: () => Promise<void>): Promise<void> {
    const known = this.#known.get(name)
    if (known) return known.run()
    const fanOut = new FanOut(async () => {
      await round()
      this.#known.delete(name)
    })
    this.#known.set(name, fanOut)
    return fanOut.run()
  }
}
