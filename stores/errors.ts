/** `refused`: the store answered that it will not; `unavailable`: it did not answer, or not in time, after all retries. */
export type StoreReason = 'exists' | 'missing' | 'refused' | 'unavailable'

/** A request that the store did not fulfil. The message names bucket, key and what can be done about it. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly reason: StoreReason

  constructor(reason: StoreReason, message: string, options?: ErrorOptions) {
    super(message, options)
    this.reason = reason
  }
}
