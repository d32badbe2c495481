/** A part of a process that runs until the process stops. */
export interface Runnable {
  /**
   * Works until the signal. Then lets active work end within the grace, in milliseconds, and gives the remaining work
   * back to another process or to the next start. Resolves 4 s after the grace at the latest if NATS and the API server
   * answer.
   */
  run(signal: AbortSignal, graceMs: number): Promise<void>
}
