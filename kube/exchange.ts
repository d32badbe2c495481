import type { ClientRequest, IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { connectionError, deadlineError } from './connection-errors.ts'
import { ApiAnswerError } from './errors.ts'

/** The limits of one request and its answer. */
export interface Exchange {
  method: string
  /** The request, for messages: `GET /api/v1/pods`. */
  title: string
  payload?: string | undefined
  /** The limit of the time from the start until the answer has been used. */
  timeoutMs: number
  signal?: AbortSignal | undefined
}

/**
 * The idle time before TCP keepalive. A peer that vanished is noticed 10 probes later, at one probe a second (libuv's
 * numbers on Linux).
 */
export const KEEPALIVE_AFTER_MS = 15_000

/** Sends the request and lets `use` read the answer. The time limit covers both. */
export function exchange<T>(
  request: ClientRequest,
  host: string,
  { method, title, payload, timeoutMs, signal }: Exchange,
  use: (answer: IncomingMessage) => Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    let sent = false
    let answer: IncomingMessage | undefined
    const effect = () => sent && method !== 'GET'

    const stop = (reason: unknown) => {
      settle()
      reject(reason)
      ;(answer ?? request).destroy()
    }
    const onAbort = () => stop(signal?.reason)
    const timer = setTimeout(() => stop(deadlineError(title, host, timeoutMs, effect())), timeoutMs)
    signal?.addEventListener('abort', onAbort, { once: true })
    const settle = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
    }
    const fail = (error: Error) => {
      settle()
      reject(error instanceof ApiAnswerError ? error : connectionError(title, host, error, effect()))
    }

    request.on('socket', (socket) => whenConnected(socket, () => (sent = true)))
    request.on('error', fail)
    request.on('response', (response) => {
      answer = response
      use(response).then((value) => {
        settle()
        resolve(value)
      }, fail)
    })
    request.end(payload)
  })
}

function whenConnected(socket: Socket, then: () => void): void {
  if (!socket.connecting) return then()
  socket.setKeepAlive(true, KEEPALIVE_AFTER_MS)
  socket.once('encrypted' in socket ? 'secureConnect' : 'connect', then)
}
