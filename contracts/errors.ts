/** Will not be retried until the object changes: the input is wrong, not the moment. */
export class TerminalError extends Error {
  override readonly name = 'TerminalError'
  /** CamelCase word for the condition and the Event that report it. */
  readonly reason: string
  constructor(message: string, options: ErrorOptions & { reason?: string } = {}) {
    super(message, options)
    this.reason = options.reason ?? 'TerminalError'
  }
}

/** Retry at that time, not by backoff. */
export class RetryAfterError extends Error {
  override readonly name = 'RetryAfterError'
  readonly afterSeconds: number
  /** CamelCase word for the condition and the Event that report it. */
  readonly reason: string
  constructor(message: string, options: ErrorOptions & { afterSeconds: number; reason?: string }) {
    super(message, options)
    const { afterSeconds, reason = 'RetryAfter' } = options ?? {}
    if (typeof afterSeconds !== 'number' || !Number.isFinite(afterSeconds) || afterSeconds < 0)
      throw new TypeError(
        `RetryAfterError "${message}": afterSeconds is ${String(afterSeconds)}: give a number of seconds`,
      )
    this.afterSeconds = afterSeconds
    this.reason = reason
  }
}

/** The state that a run decided on has moved: run again at once. */
export class ConflictError extends Error {
  override readonly name = 'ConflictError'
}
