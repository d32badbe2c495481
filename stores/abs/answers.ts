import { StoreError, type StoreReason } from '../errors.ts'
import type { HttpAnswer } from '../http.ts'
import { textOf } from '../xml.ts'
import type { AbsOptions } from './options.ts'

const REASONS: Record<string, StoreReason> = {
  BlobNotFound: 'missing',
  BlobAlreadyExists: 'exists',
  ConditionNotMet: 'exists',
}

/**
 * Returns the error that corresponds to an answer of ABS, with a fix. An answer to HEAD has no body, but a header with
 * the code.
 */
export function absError({ status, text, headers }: HttpAnswer, what: string, options: AbsOptions): StoreError {
  const code = textOf(text, 'Code') ?? headers['x-ms-error-code']?.toString()
  const reason = REASONS[code ?? ''] ?? 'refused'
  const said = [status, code].filter((word) => word !== undefined).join(' ')
  const advice = adviceOn(code, options)
  return new StoreError(reason, `${what}: ${said}${advice === undefined ? '' : `: ${advice}`}`)
}

function adviceOn(code: string | undefined, { account, container, endpoint }: AbsOptions): string | undefined {
  switch (code ?? '') {
    case 'BlobNotFound':
      return 'there is no such blob'
    case 'ContainerNotFound':
      return `create the container ${container} in the account ${account}, or correct the first segment of the path`
    case 'AuthenticationFailed':
    case 'AuthorizationFailure':
      return `correct storage-account (${account}) and storage-key in the Secret, and set the clock of the node${endpoint === undefined ? '' : `; the endpoint is ${endpoint}`}`
    case 'LeaseIdMissing':
    case 'BlobImmutableDueToPolicy':
      return 'the blob is protected: end its lease or its policy'
    default:
      return undefined
  }
}
