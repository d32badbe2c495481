/**
 * Stops the retries of an object until it, or a related object, changes: the input is wrong. The condition `Reconciled`
 * shows `reason` and message.
 *
 * @example
 * import { TerminalError } from 'fairlead'
 * const error = new TerminalError('spec.to has the namespace of the original', { reason: 'CopyOntoItself' })
 * error.reason // => 'CopyOntoItself'
 */
export class TerminalError extends Error {
  override readonly name = 'TerminalError'
  /** CamelCase word for the condition and the Event that report it. */
  readonly reason: string
  constructor(message: string, options: ErrorOptions & { reason?: string } = {}) {
    super(message, options)
    this.reason = options.reason ?? 'TerminalError'
  }
}

/**
 * Retries the run after `afterSeconds`, without backoff. The condition `Reconciled` shows `reason` and message. Throws
 * a TypeError if `afterSeconds` is negative or not a number.
 *
 * @example
 * import { RetryAfterError } from 'fairlead'
 * const error = new RetryAfterError('the bucket is being created', { afterSeconds: 30 })
 * error.afterSeconds // => 30
 */
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

/**
 * Retries the run at once: the state that it decided on has changed meanwhile.
 *
 * @example
 * import { ConflictError } from 'fairlead'
 * new ConflictError('the lock has a new owner').name // => 'ConflictError'
 */
export class ConflictError extends Error {
  override readonly name = 'ConflictError'
}
