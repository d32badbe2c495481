import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { AnswerTooLargeError, ApiAnswerError, ApiError } from './errors.ts'
import type { Status } from './types.ts'

/** An answer that was read to its end. */
export interface Answer {
  code: number
  body: string
  /** The wait that the server asks for in its headers. */
  retryAfterSeconds: number | undefined
}

/** The limit of an answer that is not requested in pages. */
const MAX_BODY_BYTES = 256 * 1024 * 1024

export function readAnswer(answer: IncomingMessage, maxBytes = MAX_BODY_BYTES): Promise<Answer> {
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
