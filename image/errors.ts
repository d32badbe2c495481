/** A registry cannot be reached, or rejects a request. */
export class RegistryError extends Error {
  override readonly name = 'RegistryError'
  /** HTTP status of the answer, if there was one. */
  readonly status: number | undefined

  constructor(message: string, { status, ...options }: ErrorOptions & { status?: number } = {}) {
    super(message, options)
    this.status = status
  }
}

/** Contents of a registry or a file do not match their digest. */
export class DigestMismatchError extends Error {
  override readonly name = 'DigestMismatchError'
}
