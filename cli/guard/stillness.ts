/** Whether the main thread hangs: a decision on what another thread sees of it at regular looks. */
export class Stillness {
  readonly #lookMs: number
  #turns = -1
  #looks = 0
  #waitedMs = 0

  constructor(lookMs: number) {
    this.#lookMs = lookMs
  }

  /**
   * For how long it could have turned its event loop and has not, in milliseconds. `turns` counts what it has turned
   * so far, `waitedMs` how long it has waited for a core so far: on a busy machine, or with a small share of one, that
   * is no hanging. Counted in looks, not by the clock: a machine that sleeps or a stopped process does not hang either.
   */
  look(turns: number, waitedMs: number): number {
    if (turns !== this.#turns) {
      this.#turns = turns
      this.#looks = 0
      this.#waitedMs = waitedMs
    } else this.#looks++
    return this.#looks * this.#lookMs - (waitedMs - this.#waitedMs)
  }
}
