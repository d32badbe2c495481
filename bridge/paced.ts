import { setTimeout } from 'node:timers'

/** The length of the pause after the work, as a multiple of the time of the work. */
const PAUSES = 9

/** Repeats an action after each poke, at once. A long action takes a tenth of the time at most. */
export class Paced {
  readonly #act: () => void
  #notBefore = 0
  #waiting: NodeJS.Timeout | undefined

  constructor(act: () => void) {
    this.#act = act
  }

  poke(): void {
    if (this.#waiting !== undefined) return
    const waitMs = this.#notBefore - performance.now()
    if (waitMs <= 0) this.#run()
    else this.#waiting = setTimeout(() => this.#run(), waitMs)
  }

  stop(): void {
    clearTimeout(this.#waiting)
  }

  #run(): void {
    this.#waiting = undefined
    const began = performance.now()
    this.#act()
    const now = performance.now()
    this.#notBefore = now + PAUSES * (now - began)
  }
}
