/**
 * What the main thread and the thread that watches it share. Without imports: whatever the second thread imports is in
 * memory twice.
 */

/** The data that both threads share: the count of turns of the event loop, and whether the process is about to end. */
export interface WatchdogData {
  shared: Int32Array
  limitMs: number
  /** The number of samples of the event loop in that time. */
  looks: number
  /** The event that the process logs, with the innermost frames of the stack. */
  event: string
}
export const TURNS = 0
export const ENDING = 1

/** A frame of the code that blocks the event loop. `place`: its file, line and column. */
export interface StalledFrame {
  text: string
  place: string
}

/** Decides whether the main thread hangs, from samples that another thread takes at regular intervals. */
export class StallDetector {
  readonly #lookMs: number
  #last: LoopSample | undefined
  #stillMs = 0

  constructor(lookMs: number) {
    this.#lookMs = lookMs
  }

  /**
   * Returns for how many milliseconds the event loop had CPU time and has not turned. Time spent waiting for a core
   * does not count, so a busy machine or a small CPU limit does not look like a hang. A late sample counts as one
   * interval, so a suspended machine or a stopped process does not look like one either.
   */
  look(now: LoopSample): number {
    const { turns, atMs, waitedMs } = this.#last ?? now
    const ranMs = now.atMs - atMs - (now.waitedMs - waitedMs)
    this.#stillMs = now.turns === turns ? this.#stillMs + Math.min(Math.max(0, ranMs), this.#lookMs) : 0
    this.#last = now
    return this.#stillMs
  }
}

export interface LoopSample {
  /** The turns of the event loop since the start. */
  turns: number
  /** The time of a monotonic clock. */
  atMs: number
  /** The time that the thread has waited for a core since the start. */
  waitedMs: number
}
