import { StoreError, type StoreReason } from '../errors.ts'
import type { HttpAnswer } from '../http.ts'
import { textOf } from '../xml.ts'
import type { S3Options } from './options.ts'

const REASONS: Record<string, StoreReason> = {
  NoSuchKey: 'missing',
  PreconditionFailed: 'exists',
  ConditionalRequestConflict: 'exists',
}

/**
 * Returns the error that corresponds to an answer of S3, with a fix. An answer to HEAD has no body, so only its status
 * counts.
 */
export function s3Error({ status, text }: HttpAnswer, what: string, options: S3Options): StoreError {
  const code = textOf(text, 'Code')
  const reason = REASONS[code ?? ''] ?? (status === 404 && code === undefined ? 'missing' : 'refused')
  const said = [status, code, textOf(text, 'Message')].filter((word) => word !== undefined && word !== '').join(' ')
  const advice = adviceOn(code, status, text, options)
  return new StoreError(reason, `${what}: ${said}${advice === undefined ? '' : `: ${advice}`}`)
}

function adviceOn(code: string | undefined, status: number, text: string, { bucket, region, endpoint }: S3Options) {
  const place = `the region is ${region}${endpoint === undefined ? '' : ` and the endpoint ${endpoint}`}`
  switch (code ?? '') {
    case 'NoSuchKey':
      return 'there is no such object'
    case 'NoSuchBucket':
      return `create the bucket ${bucket}, or correct the first segment of the path; ${place}`
    case 'PermanentRedirect':
    case 'AuthorizationHeaderMalformed':
    case 'IllegalLocationConstraintException': {
      const wanted = textOf(text, 'Region')
      return `${place}: set region${wanted === undefined ? '' : ` = ${wanted}`} in the key config of the Secret`
    }
    case 'InvalidAccessKeyId':
    case 'SignatureDoesNotMatch':
      return 'correct aws_access_key_id and aws_secret_access_key in the key credentials of the Secret'
    case 'ExpiredToken':
    case 'InvalidToken':
      return 'renew aws_session_token in the key credentials of the Secret'
    case 'RequestTimeTooSkewed':
      return 'set the clock of the node'
    default:
      return status === 403
        ? 'allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on the objects, and s3:ListBucket on the bucket, without which a missing object is answered with 403'
        : undefined
  }
}
