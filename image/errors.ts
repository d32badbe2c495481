/** A registry cannot be reached, or refuses. */
export class RegistryError extends Error {
  override readonly name = 'RegistryError'
  /** HTTP status of the answer, if there was one. */
  readonly status: number | undefined

  constructor(message: string, { status, ...options }: ErrorOptions & { status?: number } = {}) {
    super(message, options)
    this.status = status
  }
}

/** What a registry or a file has is not what its digest says. */
export class DigestMismatchError extends Error {
  override readonly name = 'DigestMismatchError'
}
