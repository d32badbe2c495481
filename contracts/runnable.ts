/** A part of a process that works for as long as the process is to work. */
export interface Runnable {
  /**
   * Works until the signal. Then lets what is under way end within the grace, in milliseconds, and gives the rest back: another
   * process, or the next start, does it. Resolves 4 s after the grace at the latest if NATS and the API server answer.
   */
  run(signal: AbortSignal, graceMs: number): Promise<void>
}
