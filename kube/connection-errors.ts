import { ApiConnectionError } from './errors.ts'

/** Returns an error that states what failed between this process and the server, and what to check. */
export function connectionError(title: string, server: string, cause: Error, sent: boolean): ApiConnectionError {
  const code = codeOf(cause)
  const message = `${title}: ${explanation(code, server)} (${cause.message === '' ? code : cause.message})`
  return new ApiConnectionError(message, { cause, server, mayHaveTakenEffect: sent })
}

export function deadlineError(title: string, server: string, timeoutMs: number, sent: boolean): ApiConnectionError {
  const message = `${title}: no whole answer from ${server} within ${timeoutMs / 1000} s`
  return new ApiConnectionError(message, { server, mayHaveTakenEffect: sent })
}

/** Whether the server closed the connection. */
export const isReset = (error: unknown): boolean =>
  error instanceof ApiConnectionError && ['ECONNRESET', 'EPIPE'].includes(codeOf(error.cause))

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : ''

function explanation(code: string, server: string): string {
  if (untrusted.has(code)) return `the certificate of ${server} is not signed by the certificate authority given for it`
  return explanations[code]?.(server) ?? `the connection to ${server} failed`
}

const explanations: Record<string, (server: string) => string> = {
  ECONNREFUSED: (server) => `nothing listens at ${server}; is the API server running, and is this its address?`,
  ENOTFOUND: (server) => `the host of ${server} is not known`,
  EAI_AGAIN: (server) => `the host of ${server} could not be looked up just now`,
  EHOSTUNREACH: (server) => `there is no way to ${server}`,
  ENETUNREACH: (server) => `there is no way to ${server}`,
  ETIMEDOUT: (server) => `${server} does not answer`,
  ECONNRESET: (server) => `the connection to ${server} broke before its answer was whole`,
  EPIPE: (server) => `the connection to ${server} broke before the request was whole`,
  CERT_HAS_EXPIRED: (server) => `the certificate of ${server} has expired`,
  CERT_NOT_YET_VALID: (server) => `the certificate of ${server} is not valid yet; is this machine's clock right?`,
  ERR_TLS_CERT_ALTNAME_INVALID: (server) => `the certificate of ${server} is for another name`,
  EPROTO: (server) => `${server} does not speak TLS as expected; is it http and not https?`,
  ERR_SSL_WRONG_VERSION_NUMBER: (server) => `${server} does not speak TLS; is it http and not https?`,
}

const untrusted = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'CERT_SIGNATURE_FAILURE',
])
