import { Agent as HttpAgent, STATUS_CODES } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { Socket } from 'node:net'
import { type DescribedObject, StoreError } from './types.ts'

/** How long a connection may be silent before it is closed. */
const SILENCE_MS = 60_000
/** How often a request is sent before it fails, and the pauses between. */
export const TRIES = 6
export const FIRST_PAUSE_MS = 250
export const LAST_PAUSE_MS = 8000

/**
 * Returns a short time-out for clean-up after a failure, so that the report of the failure does not wait for a silent
 * store.
 */
export const soon = (): AbortSignal => AbortSignal.timeout(5000)

export interface Agents {
  http: HttpAgent
  https: HttpsAgent
}

/**
 * Returns the connections of one store. They trust its authorities, use the proxies of the environment, and are closed
 * when they are silent.
 */
export function agentsOf(ca: string | undefined, silenceMs = SILENCE_MS): Agents {
  const options = { keepAlive: true, timeout: silenceMs, proxyEnv: process.env }
  return {
    http: closedWhenSilent(new HttpAgent(options), silenceMs),
    https: closedWhenSilent(new HttpsAgent({ ...options, ...(ca !== undefined && { ca }) }), silenceMs),
  }
}

function closedWhenSilent<A extends HttpAgent>(agent: A, silenceMs: number): A {
  const connect = agent.createConnection.bind(agent)
  const watch = (socket: Socket | undefined): void => {
    const error = Object.assign(new Error(`silent for ${silenceMs / 1000} s`), { code: 'ETIMEDOUT' })
    socket?.once('timeout', () => socket.destroy(error))
  }
  agent.createConnection = (options, callback) => {
    const socket = connect(options, (error, stream) => {
      // Through a proxy, the connection arrives here only.
      if (socket === undefined) watch(stream as Socket | undefined)
      callback?.(error, stream)
    }) as Socket | undefined
    watch(socket)
    return socket
  }
  const reuse = agent.reuseSocket.bind(agent)
  // Node.js leaves a connection the time-out that the server has named for idle ones, such as 5 s.
  agent.reuseSocket = (socket, request) => reuse((socket as Socket).setTimeout(silenceMs), request)
  return agent
}

/** The codes of connections whose certificate is not trusted. */
const UNTRUSTED = /^(CERT_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|ERR_TLS_)/

/**
 * Returns the error for a request that the store has not answered. It has no cause, because errors of the clients have
 * requests with credentials.
 */
export function unanswered(what: string, cause: unknown, tries = TRIES): StoreError {
  const text = textOf(cause)
  if (UNTRUSTED.test(codeOf(cause) ?? ''))
    return new StoreError(
      'refused',
      `${what}: ${text}: the certificate is not trusted: put the certificates of its authority into the key ca.crt of the Secret`,
    )
  return new StoreError('unavailable', `${what}: no answer after ${tries} tries: ${text}`)
}

const codeOf = (error: unknown): string | undefined => (error as NodeJS.ErrnoException | undefined)?.code

/**
 * Returns the status of an answer in words, which are not those of the answer: a proxy may repeat the credentials of a
 * request in a text of its own. Only the fields that a service documents are shown besides it.
 */
export const statusOf = (status: number): string => `${status} ${STATUS_CODES[status] ?? ''}`.trim()

/** Leaves out URLs with a query, also without their host, because that of an upload is a permission to write. */
export const withoutUrls = (text: string): string =>
  text.replaceAll(/(?:\bhttps?:\/)?\/[^\s?"<>]*\?[^\s"<>]+/g, 'the URL')

/**
 * Returns the text of an error. The code of a Node.js connection error is more informative than its message, which may
 * be empty.
 */
export function textOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const code = codeOf(error)
  // Errors of several addresses, or of several ways to credentials.
  const [first] = (error as { errors?: unknown[] }).errors ?? []
  if (first instanceof Error) return textOf(first)
  const [line = ''] = error.message.replace(/^request to \S+ failed, reason: /, '').split('\n')
  const text = withoutUrls(line)
  return code === undefined || text.includes(code) ? text : `${code} ${text}`
}

/** Reads all bytes of an object. Throws if the connection ends early. */
export async function* received(
  stream: AsyncIterable<Uint8Array>,
  expected: number | undefined,
  what: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  let size = 0
  const whole = expected ?? 'unknown'
  try {
    for await (const chunk of stream) {
      size += chunk.length
      yield chunk
    }
  } catch (cause) {
    signal?.throwIfAborted()
    throw new StoreError(
      'unavailable',
      `${what}: the connection was lost after ${size} of ${whole} bytes: ${textOf(cause)}`,
    )
  }
  if (expected !== undefined && size !== expected)
    throw new StoreError('unavailable', `${what}: ended after ${size} of ${expected} bytes`)
}

/** The metadata that identifies an upload, so that an upload whose answer got lost can be recognized. */
export const UPLOAD = 'fairlead-upload'

/**
 * Makes an upload visible. If the answer got lost, the metadata of the stored object show whether this upload made it.
 */
export async function publish<T>(
  commit: () => Promise<T>,
  mark: string,
  head: () => Promise<DescribedObject | undefined>,
): Promise<T | undefined> {
  try {
    return await commit()
  } catch (error) {
    const isOurs = (await head().catch(() => undefined))?.metadata[UPLOAD] === mark
    if (!isOurs) throw error
    return undefined
  }
}
