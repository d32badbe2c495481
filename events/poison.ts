/** Why a message can never be read as a CloudEvent; also a part of a subject. */
export type PoisonReason =
  | 'no-cloudevent'
  | 'unsupported-mode'
  | 'unsupported-version'
  | 'invalid-attribute'
  | 'invalid-data'
  | 'too-large'

/** The message is no CloudEvent that can be read here, and trying again will not change that. */
export class PoisonEventError extends Error {
  override readonly name = 'PoisonEventError'
  readonly reason: PoisonReason
  constructor(reason: PoisonReason, message: string, options?: ErrorOptions) {
    super(message, options)
    this.reason = reason
  }
}
