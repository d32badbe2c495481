import { type ConnectionOptions, connect } from 'nats'
import { JetStream } from './client.ts'

export interface ConnectOptions {
  /** `nats://host:port` or a comma-separated list; a user and password, or a token, may stand before the `@`. */
  servers: string
  /** Shown by the server in its connection list. */
  name: string
  /** How long one request waits before its outcome counts as unknown. */
  timeoutMs?: number
  /** Answers come on subjects below it: who may listen there sees them all. Default `_INBOX`. */
  inboxPrefix?: string
  /** What stands for `$JS.API` where the streams are another account's. */
  apiPrefix?: string | undefined
  /** Credentials file, TLS and the like, as the NATS client takes them. */
  options?: Omit<ConnectionOptions, 'servers' | 'name'>
}

/** NATS cannot be reached, or refuses this user. */
export class NatsUnreachableError extends Error {
  override readonly name = 'NatsUnreachableError'
}

/** Connects once (fails if nobody answers now) and from then on reconnects for ever. */
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

/** The client takes them beside the addresses only, and the same for all of these. */
function credentialsIn(servers: string): Pick<ConnectionOptions, 'user' | 'pass' | 'token'> {
  const [, , credentials] = CREDENTIALS.exec(servers.trim()) ?? []
  if (credentials === undefined) return {}
  const [user = '', pass] = credentials.split(/:(.*)/s).map(unescaped)
  return pass === undefined ? { token: user } : { user, pass }
}

/** A bare percent sign, which an address should not have, stands for itself. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** A password may have any character: nothing before the last `@` is shown. */
const withoutSecrets = (servers: string): string => servers.replace(/^([a-z]+:\/\/)?.*@/s, '$1…@')
