import { type ClientRequest, Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { FunctionError } from '#reconcile'
import type { Credentials } from './function-access.ts'
import { type HttpAnswer, MAX_ANSWER_BYTES } from './http-answer.ts'

export interface Post {
  headers: Record<string, string>
  body: Uint8Array
  signal: AbortSignal
  /** Whether the request may be sent twice. */
  isRepeatable: boolean
}

/** POSTs to one address over persistent connections. The caller limits the time. */
export class Poster {
  readonly #url: URL
  readonly #agent: HttpAgent
  readonly #credentials: () => Promise<Credentials>

  constructor(url: string, credentials: () => Promise<Credentials>) {
    this.#credentials = credentials
    this.#url = new URL(url)
    this.#agent =
      this.#url.protocol === 'https:' ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true })
  }

  close(): void {
    this.#agent.destroy()
  }

  /**
   * Sends the request. If a persistent connection has just closed, the server may have read the request or not, and the
   * request is repeated. A request that must not be repeated uses a connection of its own.
   */
  async post(post: Post): Promise<HttpAnswer> {
    for (;;) {
      const credentials = await this.#credentials()
      post.signal.throwIfAborted()
      try {
        return await this.#once(post, credentials)
      } catch (error) {
        if (!(error instanceof StaleConnectionError)) throw error
      }
    }
  }

  #once(post: Post, credentials: Credentials): Promise<HttpAnswer> {
    const { body, signal } = post
    return new Promise((resolve, reject) => {
      const request = this.#start(post, credentials)
      request.on('error', (cause: NodeJS.ErrnoException) => {
        if (signal.aborted) reject(signal.reason as Error)
        else if (request.reusedSocket && cause.code === 'ECONNRESET') reject(new StaleConnectionError())
        else reject(this.#away(cause))
      })
      request.on('response', (response) => {
        answerOf(response).then(resolve, (cause: Error) => {
          if (signal.aborted) reject(signal.reason as Error)
          else reject(this.#away(cause))
        })
      })
      request.end(body)
    })
  }

  /** Begins the request. Throws for an invalid certificate. */
  #start({ headers, body, signal, isRepeatable }: Post, credentials: Credentials): ClientRequest {
    const send = this.#url.protocol === 'https:' ? httpsRequest : httpRequest
    try {
      return send(this.#url, {
        method: 'POST',
        agent: isRepeatable && this.#agent,
        // The agent keeps connections by these credentials too: renewed ones get a new connection.
        ...credentials.tls,
        headers: { ...headers, ...credentials.headers, 'content-length': body.length },
        signal,
      })
    } catch (cause) {
      throw this.#away(cause as Error)
    }
  }

  #away(cause: Error): FunctionError {
    return new FunctionError(`the function at ${this.#url.origin} cannot be reached: ${cause.message || cause.name}`, {
      isAway: true,
      cause,
    })
  }
}

class StaleConnectionError extends Error {}

async function answerOf(response: IncomingMessage): Promise<HttpAnswer> {
  const head = { code: response.statusCode ?? 0, headers: response.headers }
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length
    // Leaving the loop closes the connection.
    if (bytes > MAX_ANSWER_BYTES) return { ...head, body: Buffer.alloc(0), isTooLarge: true }
    chunks.push(chunk)
  }
  return { ...head, body: Buffer.concat(chunks) }
}
