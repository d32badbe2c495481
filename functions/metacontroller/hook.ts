import { request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { RetryAfterError } from 'fairlead'
import type { Webhook } from './controller.ts'

export type HookName = 'sync' | 'finalize' | 'customize'

const DEFAULT_TIMEOUT_MS = 10_000
/** Of an answer, as of a function over HTTP. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024
const LONGEST_QUOTE = 1000
/** Who answers 429 does not stop an object for good. */
const LONGEST_WAIT_S = 86_400

interface Answer {
  code: number
  retryAfter: string
  text: string
}

/**
 * Sends the request to the webhook, and returns the text of its answer. Only 200 is an answer. Rejects with a RetryAfterError
 * for 429 with a time in `Retry-After`, and with an Error that is retried with backoff for all others.
 */
export async function call(
  name: HookName,
  webhook: Webhook,
  body: unknown,
  { signal, now }: { signal: AbortSignal; now: Date },
): Promise<string> {
  const url = addressOf(webhook)
  const who = `the ${name} hook at ${url.origin}${url.pathname}`
  const timeoutMs = durationMs(webhook.timeout) ?? DEFAULT_TIMEOUT_MS
  const limit = AbortSignal.timeout(timeoutMs)
  const answer = await post(url, webhook, JSON.stringify(body), AbortSignal.any([signal, limit])).catch(
    (cause: Error) => {
      signal.throwIfAborted()
      const why = limit.aborted
        ? `has not answered within ${timeoutMs / 1000} s`
        : `cannot be reached: ${cause.message}`
      throw new Error(`${who} ${why}`, { cause })
    },
  )
  if (answer.code === 200) return answer.text
  const said = answer.text.trim().slice(0, LONGEST_QUOTE)
  const message = `${who} answered ${answer.code}${said === '' ? '' : `: ${said}`}`
  const afterSeconds = answer.code === 429 ? secondsIn(answer.retryAfter, now) : 0
  if (afterSeconds > 0) throw new RetryAfterError(message, { afterSeconds, reason: 'TooManyRequests' })
  throw new Error(message)
}

/** Returns the URL of the webhook: `url`, or that of `service` with `path`. */
function addressOf({ url, service, path = '' }: Webhook): URL {
  if (url !== undefined) return new URL(url)
  const { name, namespace, port = 80, protocol = 'http' } = service ?? { name: '', namespace: '' }
  return new URL(`${protocol}://${name}.${namespace}:${port}${path}`)
}

const UNITS = { ns: 1e-6, us: 1e-3, µs: 1e-3, μs: 1e-3, ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/** Returns the milliseconds of a duration of Go, such as `1m30s`. Undefined: it is none, or not above zero. */
function durationMs(text = ''): number | undefined {
  if (!/^\+?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+$/.test(text)) return undefined
  const parts = [...text.matchAll(/([\d.]+)([a-zµμ]+)/g)]
  const ms = parts.reduce((sum, [, value, unit]) => sum + Number(value) * UNITS[unit as keyof typeof UNITS], 0)
  // The longest time of a timer.
  return ms > 0 ? Math.min(Math.max(1, Math.round(ms)), 2 ** 31 - 1) : undefined
}

/** Returns 0 if the header gives no time, or one that has passed. */
function secondsIn(text: string, now: Date): number {
  const seconds = /^\d+$/.test(text) ? Number(text) : Math.ceil((Date.parse(text) - now.getTime()) / 1000)
  return Number.isNaN(seconds) ? 0 : Math.min(LONGEST_WAIT_S, Math.max(0, seconds))
}

/** Repeats the request if a kept connection had just ended: a hook decides, so it may be asked twice. */
async function post(url: URL, webhook: Webhook, body: string, signal: AbortSignal): Promise<Answer> {
  for (;;) {
    try {
      return await postOnce(url, webhook, body, signal)
    } catch (error) {
      if (!(error instanceof StaleConnectionError)) throw error
    }
  }
}

class StaleConnectionError extends Error {}

function postOnce(url: URL, { caBundle }: Webhook, body: string, signal: AbortSignal): Promise<Answer> {
  const bytes = Buffer.from(body)
  return new Promise((resolve, reject) => {
    const options = {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': bytes.length },
      signal,
    }
    const request =
      url.protocol === 'https:'
        ? httpsRequest(url, { ...options, ...(caBundle?.inline && { ca: caBundle.inline }) })
        : httpRequest(url, options)
    request.on('error', (cause: NodeJS.ErrnoException) => {
      const isStale = request.reusedSocket && cause.code === 'ECONNRESET' && !signal.aborted
      reject(isStale ? new StaleConnectionError() : cause)
    })
    request.on('response', (response) => void textOf(response).then(resolve, reject))
    request.end(bytes)
  })
}

async function textOf(response: IncomingMessage): Promise<Answer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > MAX_ANSWER_BYTES) throw new Error(`its answer is larger than ${MAX_ANSWER_BYTES} bytes`)
    chunks.push(chunk)
  }
  const { statusCode: code = 0, headers } = response
  return { code, retryAfter: headers['retry-after']?.trim() ?? '', text: Buffer.concat(chunks).toString() }
}
