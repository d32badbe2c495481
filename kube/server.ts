import { createSecureContext, type SecureContext } from 'node:tls'
import { ClusterAccessError } from './errors.ts'
import type { ClusterAccess } from './types.ts'

/** The parts of the server's URL that a request needs. */
export interface ServerAddress {
  secure: boolean
  hostname: string
  port: number
  /** `host:port`, with the brackets of an IPv6 address. */
  host: string
  /** The path in front of every API path, without a slash at its end. */
  prefix: string
}

export function serverAddress({ server, origin }: ClusterAccess): ServerAddress {
  const url = URL.parse(server)
  if (url === null || !['https:', 'http:'].includes(url.protocol)) {
    throw new ClusterAccessError(`the server ${JSON.stringify(server)}${from(origin)} is not an http(s) address`)
  }
  const secure = url.protocol === 'https:'
  const port = url.port === '' ? (secure ? 443 : 80) : Number(url.port)
  return {
    secure,
    port,
    hostname: url.hostname.replace(/^\[|\]$/g, ''),
    host: `${url.hostname}:${port}`,
    prefix: url.pathname.replace(/\/+$/, ''),
  }
}

interface TlsOptions {
  secureContext: SecureContext
  rejectUnauthorized: boolean
  servername?: string
}

/** One secure context for all connections. Certificates are parsed once, and a bad one fails at the start. */
export function tlsOptions(access: ClusterAccess): TlsOptions {
  return {
    secureContext: secureContext(access),
    rejectUnauthorized: access.insecure !== true,
    ...(access.serverName === undefined ? {} : { servername: access.serverName }),
  }
}

function secureContext({ ca, cert, key, origin }: ClusterAccess): SecureContext {
  try {
    return createSecureContext({ ca, cert, key })
  } catch (cause) {
    throw new ClusterAccessError(
      `a certificate or key${from(origin)} cannot be used: ${(cause as Error).message}; it has to be PEM, and the key has to belong to the certificate`,
      { cause },
    )
  }
}

const from = (origin: string | undefined): string => (origin === undefined ? '' : ` of ${origin}`)
