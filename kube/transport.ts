import { type ClientRequest, type IncomingMessage, Agent as PlainAgent, request as plainRequest } from 'node:http'
import { request as secureRequest, Agent as TlsAgent } from 'node:https'
import type { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { checkServerIdentity, createSecureContext, type PeerCertificate, type SecureContext } from 'node:tls'
import { ApiAnswerError, ApiConnectionError, ClusterAccessError } from './errors.ts'
import { sharedLookup } from './lookup.ts'
import type { ClusterAccess } from './types.ts'

/** The head of an answer, and its body as a stream. */
export type HttpAnswer = Readable & Pick<IncomingMessage, 'statusCode' | 'headers'>

/** One request, as it is sent. */
export interface Call extends Exchange {
  /** Path and query. */
  target: string
  headers: Record<string, string | string[] | number>
  /** Uses a connection of its own, and closes it afterwards. */
  alone?: boolean
}

export interface Transport {
  /** `host:port`. */
  readonly host: string
  /** Hands the head of the answer to `use`, which reads the body. Rejects with ApiConnectionError or the signal's reason. */
  send<T>(call: Call, use: (answer: HttpAnswer) => Promise<T>): Promise<T>
  close(): void | Promise<void>
}

/** A kube-apiserver closes a connection that is idle for 90 s (Kubernetes 1.36). The client closes it earlier. */
const IDLE_MS = 60_000

/** HTTP/1.1 over persistent connections. docs/decisions/0005-http-client.md gives the reasons against HTTP/2. */
export function createTransport(access: ClusterAccess, maxSockets: number): Transport {
  const { secure, host, hostname, port, prefix } = serverAddress(access)
  const AgentOf = secure ? TlsAgent : PlainAgent
  const tls = secure ? tlsOptions(access) : {}
  // The names of the environment's variables. Each one is for servers of one protocol.
  const proxyEnv = access.proxy === undefined ? undefined : { HTTPS_PROXY: access.proxy, HTTP_PROXY: access.proxy }
  const peer = access.proxy === undefined ? host : `${host} (through the proxy ${URL.parse(access.proxy)?.host})`
  const kept =
    access.agent ??
    new AgentOf({
      ...tls,
      proxyEnv,
      keepAlive: true,
      keepAliveMsecs: KEEPALIVE_AFTER_MS,
      timeout: IDLE_MS,
      maxSockets,
    })
  const single = access.agent ?? new AgentOf({ ...tls, proxyEnv, keepAlive: false })

  // The agent of a SOCKS proxy does not pass on an address that is no name, and would compare with `localhost`.
  const identity = access.agent && {
    checkServerIdentity: (_: string, cert: PeerCertificate) => checkServerIdentity(access.serverName ?? hostname, cert),
  }
  const start = ({ method, target, headers, alone }: Call): ClientRequest =>
    (secure ? secureRequest : plainRequest)({
      hostname,
      port,
      method,
      path: prefix + target,
      headers,
      agent: alone === true ? single : kept,
      lookup: sharedLookup,
      ...identity,
    })

  return {
    host,
    async send(call, use) {
      call.signal?.throwIfAborted()
      const request = start(call)
      try {
        return await exchange(request, peer, call, use)
      } catch (error) {
        if (!(call.method === 'GET' && request.reusedSocket && isReset(error))) throw error
        return await exchange(start(call), peer, call, use)
      }
    },
    close() {
      kept.destroy()
      single.destroy()
    },
  }
}

/** The limits of one request and its answer. */
interface Exchange {
  method: string
  /** The request, for messages: `GET /api/v1/pods`. */
  title: string
  payload?: string | undefined
  /** The limit of the time from the start until the answer has been used. */
  timeoutMs: number
  signal?: AbortSignal | undefined
  mayStart?: (() => number) | undefined
}

/**
 * The idle time before TCP keepalive. A peer that vanished is noticed 10 probes later, at one probe a second (libuv's
 * numbers on Linux).
 */
const KEEPALIVE_AFTER_MS = 15_000

/** Sends the request and lets `use` read the answer. The time limit covers both. */
function exchange<T>(
  request: ClientRequest,
  host: string,
  { title, payload, timeoutMs, signal, mayStart }: Exchange,
  use: (answer: HttpAnswer) => Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let wasSent = false
    let answer: IncomingMessage | undefined

    const stop = (reason: unknown) => {
      settle()
      reject(reason)
      ;(answer ?? request).destroy()
    }
    const onAbort = () => stop(signal?.reason)
    const timer = setTimeout(() => stop(deadlineError(title, host, timeoutMs, wasSent)), timeoutMs)
    signal?.addEventListener('abort', onAbort, { once: true })
    const settle = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
    }
    const fail = (error: Error) => {
      settle()
      reject(error instanceof ApiAnswerError ? error : connectionError(title, host, error, wasSent))
    }

    // Nothing is sent before there is a connection, for which the request may have waited.
    const begin = () => {
      try {
        mayStart?.()
        wasSent = true
        request.end(payload)
      } catch (error) {
        stop(error)
      }
    }
    request.on('socket', (socket) => whenConnected(socket, begin))
    request.on('error', fail)
    request.on('response', (response) => {
      answer = response
      use(response).then((value) => {
        settle()
        resolve(value)
      }, fail)
    })
  })
}

function whenConnected(socket: Socket, then: () => void): void {
  if (!socket.connecting) return then()
  socket.setKeepAlive(true, KEEPALIVE_AFTER_MS)
  socket.once('encrypted' in socket ? 'secureConnect' : 'connect', then)
}

/** The parts of the server's URL that a request needs. */
interface ServerAddress {
  secure: boolean
  hostname: string
  port: number
  /** `host:port`, with the brackets of an IPv6 address. */
  host: string
  /** The path in front of every API path, without a slash at its end. */
  prefix: string
}

function serverAddress({ server, origin }: ClusterAccess): ServerAddress {
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
function tlsOptions(access: ClusterAccess): TlsOptions {
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

/** Returns an error that states what failed between this process and the server, and what to check. */
export function connectionError(title: string, server: string, cause: Error, wasSent: boolean): ApiConnectionError {
  const code = codeOf(cause)
  const message = `${title}: ${explanation(code, server)} (${cause.message === '' ? code : cause.message})`
  return new ApiConnectionError(message, { cause, server, wasSent })
}

export function deadlineError(title: string, server: string, timeoutMs: number, wasSent: boolean): ApiConnectionError {
  const message = `${title}: no whole answer from ${server} within ${timeoutMs / 1000} s`
  return new ApiConnectionError(message, { server, wasSent })
}

/** Whether the server closed the connection. */
const isReset = (error: unknown): boolean =>
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
