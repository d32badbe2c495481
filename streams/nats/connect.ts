import { type ConnectionOptions, connect } from 'nats'
import { JetStream } from './client.ts'

export interface ConnectOptions {
  /** `nats://host:port`, or a comma-separated list. A user and password, or a token, may stand before the `@`. */
  servers: string
  /** The name of the connection in the server's list. */
  name: string
  /** How long one request waits before its outcome counts as unknown, in milliseconds. */
  timeoutMs?: number
  /** The beginning of subjects for answers. A user who may subscribe there sees all answers. Default `_INBOX`. */
  inboxPrefix?: string
  /** The replacement of `$JS.API` if the streams belong to another account. */
  apiPrefix?: string
  /** Options of the NATS client, such as a credentials file or TLS. */
  options?: Omit<ConnectionOptions, 'servers' | 'name'>
}

/** Thrown if NATS cannot be reached, or refuses this user. */
export class NatsUnreachableError extends Error {
  override readonly name = 'NatsUnreachableError'
}

/** Connects once, and then reconnects without limit. Throws NatsUnreachableError if NATS does not answer now. */
export async function connectJetStream({
  servers,
  name,
  timeoutMs = 2000,
  inboxPrefix = '_INBOX',
  apiPrefix,
  options,
}: ConnectOptions): Promise<JetStream> {
  const nc = await connect({
    name,
    servers: servers.split(',').map((server) => server.trim().replace(CREDENTIALS, '$1')),
    ...credentialsIn(servers),
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    reconnectJitter: 100,
    pingInterval: 5000,
    maxPingOut: 2,
    timeout: 3000,
    noAsyncTraces: true,
    inboxPrefix,
    ...options,
  }).catch((cause: Error) => {
    throw new NatsUnreachableError(`cannot connect to NATS at ${withoutSecrets(servers)}: ${cause.message}`, { cause })
  })
  return JetStream.over(nc, { timeoutMs, inboxPrefix, apiPrefix })
}

const CREDENTIALS = /^([a-z]+:\/\/|)([^@/]*)@/

/** Returns the credentials in the addresses. The client accepts them only as options, the same for all addresses. */
function credentialsIn(servers: string): Pick<ConnectionOptions, 'user' | 'pass' | 'token'> {
  const [, , credentials] = CREDENTIALS.exec(servers.trim()) ?? []
  if (credentials === undefined) return {}
  const [user = '', pass] = credentials.split(/:(.*)/s).map(unescaped)
  return pass === undefined ? { token: user } : { user, pass }
}

/** Decodes a text. An unescaped percent sign, which an address should not have, stays unchanged. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** Removes credentials. A password may contain any character, so everything before the last `@` is removed. */
const withoutSecrets = (servers: string): string => servers.replace(/^([a-z]+:\/\/)?.*@/s, '$1…@')
