import type { IncomingMessage } from 'node:http'
import { unlessAborted } from '#primitives'
import { payloadOf } from './payload.ts'
import type { Call, Transport } from './transport.ts'
import type { KubeClientOptions, KubeRequest, Query } from './types.ts'

interface ApiCall extends KubeRequest {
  /** Uses a connection of its own. */
  alone?: boolean
}

/** Sends requests with the credentials, and repeats a request once with new ones after a 401. */
export interface Caller {
  readonly host: string
  /** The source of the credentials, for messages. */
  readonly origin: string | undefined
  send<T extends { code: number }>(call: ApiCall, use: (answer: IncomingMessage) => Promise<T>): Promise<T>
}

const DEFAULT_TIMEOUT_MS = 30_000

export function createCaller(transport: Transport, options: KubeClientOptions): Caller {
  const { token: tokenSource, onRequest, userAgent, timeoutMs = DEFAULT_TIMEOUT_MS } = options
  const { host } = transport

  const attempt = async <T extends { code: number }>(
    call: ApiCall,
    use: (answer: IncomingMessage) => Promise<T>,
    token: string | undefined,
  ): Promise<T> => {
    const { method, path } = call
    let code = '<error>'
    try {
      const used = await transport.send(wireCall(call, { userAgent, timeoutMs, token }), use)
      code = String(used.code)
      return used
    } finally {
      onRequest?.({ method, host, code, path })
    }
  }

  return {
    host,
    origin: options.origin,
    async send(call, use) {
      call.signal?.throwIfAborted()
      // The token may come from a slow plugin.
      const token = tokenSource && (await unlessAborted(tokenSource(), call.signal))
      const first = await attempt(call, use, token)
      if (first.code !== 401 || tokenSource === undefined || token === undefined) return first
      const renewed = await unlessAborted(tokenSource(token), call.signal)
      return renewed === token ? first : attempt(call, use, renewed)
    },
  }
}

export const sending = (caller: Caller, headers: Record<string, string>): Caller => ({
  ...caller,
  send: (call, use) => caller.send({ ...call, headers: { ...headers, ...call.headers } }, use),
})

export const titleOf = ({ method, path }: Pick<KubeRequest, 'method' | 'path'>): string => `${method} ${path}`

interface Defaults {
  userAgent: string
  timeoutMs: number
  token: string | undefined
}

function wireCall(call: ApiCall, { userAgent, timeoutMs, token }: Defaults): Call {
  const payload = call.body === undefined ? undefined : payloadOf(call.body, call.contentType)
  return {
    method: call.method,
    title: titleOf(call),
    target: call.path + queryString(call.query),
    headers: {
      accept: call.accept ?? 'application/json',
      'user-agent': userAgent,
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(payload === undefined
        ? {}
        : { 'content-type': call.contentType ?? 'application/json', 'content-length': Buffer.byteLength(payload) }),
      ...call.headers,
    },
    payload,
    timeoutMs: call.timeoutMs ?? timeoutMs,
    signal: call.signal,
    alone: call.alone === true,
  }
}

function queryString(query: Query | undefined): string {
  const params = new URLSearchParams()
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== '') params.append(name, String(value))
  }
  return params.size === 0 ? '' : `?${params}`
}
