import { readFile } from 'node:fs/promises'
import { type ClientRequest, Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import { apiVersionOf, EVENT_TYPES, type Invoke, type KubeObject, REVISION_HEADER, type ResourceRef } from '#contracts'
import { type CloudEvent, toHttp } from '#events'
import { resourcePath } from '#kube'
import { backoffMs } from '#queue'
import { FunctionError } from '#reconcile'
import { isRevision, RECONCILERS, type ReconcilerSpec } from '#spec'
import { type HttpAnswer, MAX_ANSWER_BYTES, returnedIn } from './http-answer.ts'

export interface HttpFunctionDeps {
  /** The name of the Reconciler. */
  name: string
  spec: ReconcilerSpec
  url: string
  access?: FunctionAccess
  /** The name of the cluster in `source`. */
  cluster: string
  now: () => Date
  random: () => number
  /** Called with the reason after several calls in a row without an answer. */
  unreachable?: (why: string) => void
  /** Called after each answer with any content. */
  answered?: () => void
}

export interface HttpFunction {
  invoke: Invoke
  /** Closes its connections. */
  close(): void
}

/**
 * The number of calls in a row without an answer before the function counts as unreachable. A function that starts or
 * is replaced misses some calls.
 */
const UNREACHABLE_FROM = 5
/** The pauses while the function does not answer. The objects are not the cause, so their attempts are not counted. */
const AWAY_BACKOFF = { initialSeconds: 0.25, maxSeconds: 15, jitter: 0.2 }

/** Returns a function behind a URL: a Knative Service, or any server that follows docs/http-functions.md. */
export function httpFunction(deps: HttpFunctionDeps): HttpFunction {
  const { name, spec, url, access, cluster, now, random, unreachable, answered } = deps
  const poster = new Poster(url, credentialsOf(access))
  let lastAnswer = 0
  let away = 0

  const invoke: Invoke = async (input, { signal, traceparent, answeredBy }) => {
    const ask = input.ask ?? 'reconcile'
    const event = eventAbout(input.object, EVENT_TYPES[ask].request)
    const { headers, body } = toHttp({
      ...event,
      time: now().toISOString(),
      data: input,
      ...(traceparent && { traceparent }),
    })
    const began = performance.now()
    try {
      const answer = await poster.post({
        headers: { ...headers, prefer: 'reply', ...(traceparent && { traceparent }) },
        body,
        signal,
        isRepeatable: ask !== 'perform',
      })
      const returned = returnedIn(answer, { name, ask, finalizing: input.finalizing, now: now() })
      noteAnswer()
      const revision = answer.headers[REVISION_HEADER]
      if (typeof revision === 'string' && isRevision(revision)) answeredBy?.(revision)
      return returned
    } catch (error) {
      if (!(error instanceof FunctionError) || !error.isAway) {
        if (!signal.aborted) noteAnswer()
        throw error
      }
      throw judged(error, began)
    }
  }

  function noteAnswer(): void {
    away = 0
    lastAnswer = performance.now()
    answered?.()
  }

  /**
   * Returns the error with its consequence. If other calls were answered meanwhile, the function is reachable, and the
   * failure counts for this object.
   */
  function judged(error: FunctionError, began: number): FunctionError {
    if (lastAnswer > began)
      return new FunctionError(error.message, { afterSeconds: error.afterSeconds, isAway: false, cause: error })
    const afterSeconds = error.afterSeconds ?? backoffMs(away, AWAY_BACKOFF, random) / 1000
    if (++away === UNREACHABLE_FROM) unreachable?.(error.message)
    return new FunctionError(error.message, { afterSeconds, isAway: true, cause: error.cause })
  }

  function eventAbout(object: KubeObject | null, type: string): CloudEvent {
    const { for: primary } = spec
    return {
      specversion: '1.0',
      id: crypto.randomUUID(),
      source: `https://${cluster}/apis/${apiVersionOf(RECONCILERS)}/${RECONCILERS.resource}/${name}`,
      type,
      datacontenttype: 'application/json',
      ...(object && subjectOf(primary, object)),
    }
  }

  return { invoke, close: () => poster.close() }
}

function subjectOf(ref: ResourceRef, { metadata: { namespace, name } }: KubeObject) {
  return {
    subject: resourcePath(ref, namespace, name),
    partitionkey: `${ref.group}/${ref.resource}/${namespace ?? ''}/${name}`,
  }
}

interface Post {
  headers: Record<string, string>
  body: Uint8Array
  signal: AbortSignal
  /** Whether the request may be sent twice. */
  isRepeatable: boolean
}

/** POSTs to one address over persistent connections. The caller limits the time. */
class Poster {
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

/** The access to the server of a function. Files are read again when they are ten seconds old. */
export interface FunctionAccess {
  /** Scheme, host and port, as in `https://shops.example.com:8443`. Other servers do not receive the credentials. */
  origin: string
  /** The reconcilers whose calls use this access. Left out: all. */
  reconcilers?: readonly string[]
  /** A file with certificate authorities in PEM. They replace the authorities of the system. */
  caFile?: string
  /** A file with a bearer token. */
  tokenFile?: string
  /** A file with the client certificate of the dispatcher, PEM. */
  certFile?: string
  keyFile?: string
}

/** The credentials for a request. */
interface Credentials {
  headers: { authorization?: string }
  tls: { ca?: string; cert?: string; key?: string }
}

const MAX_AGE_MS = 10_000
const NONE: Credentials = { headers: {}, tls: {} }

export const accessTo = (
  all: readonly FunctionAccess[],
  url: string,
  reconciler: string,
): FunctionAccess | undefined => {
  const { origin } = new URL(url)
  return all.find((one) => one.origin === origin && (one.reconcilers?.includes(reconciler) ?? true))
}

/**
 * Returns a function that reads the credentials. It rejects with a FunctionError that names the file; the function is
 * then not called.
 */
function credentialsOf(access: FunctionAccess | undefined): () => Promise<Credentials> {
  if (access === undefined) return async () => NONE
  let last: { credentials: Promise<Credentials>; readAt: number } | undefined
  return () => {
    const now = performance.now()
    if (last === undefined || now - last.readAt >= MAX_AGE_MS) last = { credentials: read(access), readAt: now }
    const { credentials } = last
    return credentials.catch((error: unknown) => {
      if (last?.credentials === credentials) last = undefined
      throw error
    })
  }
}

async function read({ caFile, tokenFile, certFile, keyFile }: FunctionAccess): Promise<Credentials> {
  const [ca, token, cert, key] = await Promise.all([caFile, tokenFile, certFile, keyFile].map(contentOf))
  return {
    headers: { ...(token !== undefined && { authorization: `Bearer ${token}` }) },
    tls: { ca, cert, key },
  }
}

async function contentOf(file: string | undefined): Promise<string | undefined> {
  if (file === undefined) return undefined
  const content = await readFile(file, 'utf8').catch((cause: NodeJS.ErrnoException) => {
    const message = `the function is not called: its credentials in ${file} cannot be read (${cause.code ?? cause.name})`
    throw new FunctionError(message, { isAway: true, cause })
  })
  if (content.trim() === '')
    throw new FunctionError(`the function is not called: its credentials file ${file} is empty`, { isAway: true })
  return content.trim()
}
