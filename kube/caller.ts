import type { IncomingHttpHeaders } from 'node:http'
import { unlessAborted } from '#primitives'
import { AnswerTooLargeError, ApiAnswerError, ApiError } from './errors.ts'
import type { Call, HttpAnswer, Transport } from './transport.ts'
import type { Answer, ClientOptions, KubeRequest, Query, Status } from './types.ts'

/** Sends requests with the credentials, and repeats a request once with new ones after a 401. */
export interface Caller {
  readonly host: string
  /** The source of the credentials, for messages. */
  readonly origin: string | undefined
  send<T extends { code: number }>(call: KubeRequest, use: (answer: HttpAnswer) => Promise<T>): Promise<T>
}

const DEFAULT_TIMEOUT_MS = 30_000

export function createCaller(transport: Transport, options: ClientOptions): Caller {
  const { token: tokenSource, headers, onRequest, userAgent, timeoutMs = DEFAULT_TIMEOUT_MS } = options
  const { host } = transport

  const attempt = async <T extends { code: number }>(
    call: KubeRequest,
    use: (answer: HttpAnswer) => Promise<T>,
    token: string | undefined,
  ): Promise<T> => {
    const { method, path } = call
    let code = '<error>'
    try {
      const used = await transport.send(wireCall(call, { userAgent, timeoutMs, token, headers }), use)
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

export const sending = (
  caller: Caller,
  headers: Record<string, string>,
  mayStart: KubeRequest['mayStart'],
): Caller => ({
  ...caller,
  send: (call, use) =>
    caller.send({ ...call, ...(mayStart && { mayStart }), headers: { ...headers, ...call.headers } }, use),
})

export const titleOf = ({ method, path }: Pick<KubeRequest, 'method' | 'path'>): string => `${method} ${path}`

interface Defaults {
  userAgent: string
  timeoutMs: number
  token: string | undefined
  headers: ClientOptions['headers']
}

function wireCall(call: KubeRequest, { userAgent, timeoutMs, token, headers }: Defaults): Call {
  const payload = call.text ?? (call.body === undefined ? undefined : payloadOf(call.body, call.contentType))
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
      // The groups of one user are not those of another.
      ...(call.headers?.['impersonate-user'] === undefined ? headers : {}),
      ...call.headers,
    },
    payload,
    timeoutMs: call.timeoutMs ?? timeoutMs,
    signal: call.signal,
    mayStart: call.mayStart,
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

/**
 * The media type of server-side apply. The API server has none in JSON (Kubernetes 1.36), and parses the JSON as YAML.
 */
export const APPLY_TYPE = 'application/apply-patch+yaml'

/** YAML takes some of these characters for line breaks, and refuses the others. JSON may have all of them in a string. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are the subject
const NOT_IN_YAML = /[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g
/** The form in which JSON.stringify() writes half of a surrogate pair. */
const LONE_SURROGATE = /\\ud[89a-f][0-9a-f]{2}/
/** YAML limits an implicit key to 1,024 characters. JSON writes one character as six at most. */
const LONGEST_KEY = 160

/** Returns the body of a request. */
const payloadOf = (body: unknown, contentType: string | undefined): string =>
  contentType === APPLY_TYPE ? jsonAsYaml(body) : JSON.stringify(body)

function jsonAsYaml(body: unknown): string {
  const json = JSON.stringify(body)
  const isOdd = LONE_SURROGATE.test(json) || (json.length > LONGEST_KEY && hasLongKey(body))
  const yaml = isOdd ? withMarkedKeys(JSON.parse(json)) : json
  return yaml.replace(NOT_IN_YAML, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

const hasLongKey = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  Object.entries(value).some(([key, inner]) => key.length > LONGEST_KEY || hasLongKey(inner))

/**
 * Writes each key after a question mark, where YAML does not limit its length. Half of a surrogate pair is replaced, as
 * the API server does when it reads JSON.
 */
function withMarkedKeys(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.toWellFormed())
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(withMarkedKeys).join()}]`
  const fields = Object.entries(value).map(
    ([key, inner]) => `? ${JSON.stringify(key.toWellFormed())} : ${withMarkedKeys(inner)}`,
  )
  return `{${fields.join()}}`
}

/** The limit of an answer that is not requested in pages. */
const MAX_BODY_BYTES = 256 * 1024 * 1024

export function readAnswer(answer: HttpAnswer, maxBytes = MAX_BODY_BYTES): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let bytes = 0
    answer.on('data', (chunk: Buffer) => {
      bytes += chunk.length
      if (bytes <= maxBytes) return chunks.push(chunk)
      reject(new AnswerTooLargeError(`the answer is larger than ${maxBytes} bytes; ask for less at once (limit)`))
      return answer.destroy()
    })
    answer.on('error', reject)
    answer.on('end', () => {
      const body = Buffer.concat(chunks, bytes).toString()
      resolve({ code: answer.statusCode ?? 0, body, retryAfterSeconds: retryAfterOf(answer.headers) })
    })
  })
}

export const isSuccess = ({ code }: { code: number }): boolean => code >= 200 && code < 300

export function parseBody(title: string, { body, code }: Answer): unknown {
  try {
    return JSON.parse(body)
  } catch {
    throw notJson(`${title}: the answer (${code})`, body)
  }
}

/**
 * Returns an error that shows how a proxy's page begins. It shows nothing of broken JSON, which may be a Secret, and
 * neither the parser's error, which quotes it.
 */
export function notJson(what: string, text: string): ApiAnswerError {
  const isCutOff = /^\s*[[{]/.test(text)
  return new ApiAnswerError(`${what} is not JSON: ${isCutOff ? `${text.length} characters` : excerpt(text)}`)
}

/**
 * Returns the error that the server reports. If a proxy answered in its place, the error shows an excerpt of the
 * proxy's page.
 */
export function errorOf(title: string, { code, body, retryAfterSeconds }: Answer, origin = 'this client'): ApiError {
  const status = statusIn(body)
  const message = code === 401 ? `the server does not accept the credentials of ${origin}; renew them` : status.message
  return new ApiError(title, { ...status, message, code }, retryAfterSeconds)
}

function statusIn(body: string): Status {
  try {
    const status = JSON.parse(body) as Status | null
    if (status?.kind === 'Status') return status
  } catch {
    // The excerpt of a proxy's page is more useful than the parser's error.
  }
  return { apiVersion: 'v1', kind: 'Status', message: excerpt(body.trim()) }
}

/**
 * Seconds, the only form that an API server sends, or an HTTP date, compared with the server's clock (RFC 9110
 * §10.2.3).
 */
function retryAfterOf(headers: IncomingHttpHeaders): number | undefined {
  const asked = headers['retry-after']?.trim() ?? ''
  if (asked === '') return undefined
  const seconds = /^\d+$/.test(asked) ? Number(asked) : (Date.parse(asked) - Date.parse(headers.date ?? '')) / 1000
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds)
}

const excerpt = (text: string): string => (text.length <= 200 ? text : `${text.slice(0, 200)}…`)
