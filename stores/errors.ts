/** `refused`: the store answered with an error. `unavailable`: it did not answer in time after all retries. */
export type StoreReason = 'exists' | 'missing' | 'refused' | 'unavailable'

/** Thrown if the store did not fulfil a request. The message names bucket, key and a fix. */
export class StoreError extends Error {
  override readonly name = 'StoreError'
  readonly reason: StoreReason

  constructor(reason: StoreReason, message: string, options?: ErrorOptions) {
    super(message, options)
    this.reason = reason
  }
}
