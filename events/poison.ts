/** The reason why a message can never be read as a CloudEvent; also a part of a subject. */
export type PoisonReason =
  | 'no-cloudevent'
  | 'unsupported-mode'
  | 'unsupported-version'
  | 'invalid-attribute'
  | 'invalid-data'
  | 'too-large'

/** Thrown if a message is not a readable CloudEvent, so that another attempt would fail as well. */
export class PoisonEventError extends Error {
  override readonly name = 'PoisonEventError'
  readonly reason: PoisonReason
  constructor(reason: PoisonReason, message: string, options?: ErrorOptions) {
    super(message, options)
    this.reason = reason
  }
}
