import { setTimeout } from 'node:timers'

/** Work is followed by a pause of so many times as long. */
const PAUSES = 9

/** Does something again after each poke: at once, or, where it takes long, in at most a tenth of the time. */
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
