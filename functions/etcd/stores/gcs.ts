import { createHash, type Hash, randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import { setTimeout as pause } from 'node:timers/promises'
import { type AuthClient, GoogleAuth, JWT, OAuth2Client } from 'google-auth-library'
import {
  type Agents,
  agentsOf,
  FIRST_PAUSE_MS,
  LAST_PAUSE_MS,
  publish,
  received,
  soon,
  statusOf,
  TRIES,
  textOf,
  UPLOAD,
  unanswered,
  withoutUrls,
} from './connection.ts'
import { type Part, partsOf } from './parts.ts'
import type { ServiceAccountKey } from './secrets.ts'
import {
  type Connection,
  type DescribedObject,
  type GetOptions,
  type Metadata,
  MOST_KEYS,
  type PutOptions,
  rangeHeader,
  type Store,
  type StoredObject,
  StoreError,
  type StoreReason,
  unlessMissing,
} from './types.ts'

/** A token that was requested elsewhere, or the key of a service account, with which tokens are requested. */
export type GcsCredentials = { accessToken: string } | { serviceAccount: ServiceAccountKey }

export interface GcsOptions extends Connection {
  bucket: string
  /** Default: the identity of the pod, by the metadata server. */
  credentials?: GcsCredentials
}

const ENDPOINT = 'https://storage.googleapis.com'
const SCOPE = 'https://www.googleapis.com/auth/devstorage.read_write'
const RESUME = 308

type Request = Parameters<AuthClient['request']>[0]
type Answer = Awaited<ReturnType<AuthClient['request']>>

/** An upload that is under way. */
interface Upload {
  key: string
  /** The permission to write this object. */
  url: string
  md5: Hash
  size: number
  signal: AbortSignal | undefined
}

interface GcsObject {
  name: string
  size: string
  generation?: string
  md5Hash?: string
  metadata?: Metadata
}

/**
 * A store in Google Cloud Storage, by its JSON API and Google's client for tokens and requests. `@google-cloud/storage`
 * sends no digest with the end of an upload, and takes away a damaged object whatever has replaced it.
 */
export class GcsStore implements Store {
  readonly #options: GcsOptions
  readonly #agents: Agents
  readonly #client: Promise<AuthClient>

  constructor(options: GcsOptions) {
    this.#options = options
    this.#agents = agentsOf(options.ca)
    this.#client = clientOf(options.credentials, this.#agents)
    // A failure is that of the first request.
    this.#client.catch(() => undefined)
  }

  address(key: string): string {
    return `gs://${this.#options.bucket}/${key}`
  }

  /** Stores an object in one part after the other: a resumable upload has one end, to which parts are appended. */
  async put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<number> {
    const { signal } = options
    const mark = randomUUID()
    const url = await this.#begin(key, { ...options, metadata: { ...options.metadata, [UPLOAD]: mark } })
    const upload: Upload = { key, url, md5: createHash('md5'), size: 0, signal }
    try {
      for await (const part of partsOf(source)) {
        upload.md5.update(part.bytes)
        upload.size += part.bytes.length
        const append = () => this.#append(upload, part)
        const object = part.isLast ? await publish(append, mark, () => this.head(key, soon())) : await append()
        part.release()
        if (object) await this.#requireSame(upload, object)
      }
      return upload.size
    } catch (error) {
      await this.#send({ method: 'DELETE', url, signal: soon() }).catch(() => undefined)
      throw error
    }
  }

  async *get(key: string, { range, signal }: GetOptions = {}): AsyncGenerator<Uint8Array> {
    const what = `GET ${this.address(key)}`
    const { data, headers } = await this.#asked(what, {
      url: this.#url(`o/${encodeURIComponent(key)}`),
      params: { alt: 'media' },
      responseType: 'stream',
      headers: { 'accept-encoding': 'identity', ...(range && { range: rangeHeader(range) }) },
      ...(signal && { signal }),
    })
    const length = headers.get('content-length')
    yield* received(data as AsyncIterable<Uint8Array>, length === null ? undefined : Number(length), what, signal)
  }

  async *list(prefix: string): AsyncGenerator<StoredObject> {
    const { pageSize: maxResults = MOST_KEYS } = this.#options
    const fields = 'items(name,size),nextPageToken'
    for (let pageToken: string | undefined, isFirst = true; isFirst || pageToken; isFirst = false) {
      const params = { prefix, fields, maxResults, ...(pageToken !== undefined && { pageToken }) }
      const { data } = await this.#asked(`LIST ${this.address(prefix)}`, { url: this.#url('o'), params })
      const page = data as { items?: GcsObject[]; nextPageToken?: string }
      for (const { name, size } of page.items ?? []) yield { key: name, size: Number(size) }
      pageToken = page.nextPageToken
    }
  }

  async head(key: string, signal?: AbortSignal): Promise<DescribedObject | undefined> {
    const url = this.#url(`o/${encodeURIComponent(key)}`)
    const params = { fields: 'name,size,metadata' }
    const found = await unlessMissing(
      this.#asked(`GET ${this.address(key)} (metadata)`, { url, params, ...(signal && { signal }) }),
    )
    if (found === undefined) return undefined
    const { size, metadata = {} } = found.data as GcsObject
    return { key, size: Number(size), metadata }
  }

  async delete(key: string, generation?: string): Promise<void> {
    const url = this.#url(`o/${encodeURIComponent(key)}`)
    const params = generation === undefined ? {} : { generation }
    await unlessMissing(this.#asked(`DELETE ${this.address(key)}`, { method: 'DELETE', url, params }))
  }

  /** Returns the URL of a new upload. The URL needs no token. */
  async #begin(key: string, { metadata, ifAbsent = false, signal }: PutOptions): Promise<string> {
    const what = `POST ${this.address(key)} (begin)`
    const { headers } = await this.#asked(what, {
      method: 'POST',
      url: this.#url('o').replace('/storage/v1/', '/upload/storage/v1/'),
      params: { uploadType: 'resumable', name: key, ...(ifAbsent && { ifGenerationMatch: '0' }) },
      data: { contentType: 'application/octet-stream', metadata },
      ...(signal && { signal }),
    })
    const location = headers.get('location')
    if (location !== null) return new URL(location, this.#options.endpoint ?? ENDPOINT).href
    throw new StoreError('refused', `${what}: the answer has no location: is it Google Cloud Storage that answers?`)
  }

  /**
   * Sends a part. After a lost answer, asks the service how much has arrived, and sends only the rest, because bytes
   * that are sent twice could be stored twice. Returns the object after the last part, which has the digest of all
   * bytes: the service publishes nothing else, and keeps the former object.
   */
  async #append({ key, url, md5, signal }: Upload, part: Part): Promise<GcsObject | undefined> {
    const hash = part.isLast ? { 'x-goog-hash': `md5=${md5.copy().digest('base64')}` } : undefined
    const end = part.offset + part.bytes.length
    const total = part.isLast ? String(end) : '*'
    const what = `PUT ${this.address(key)}`
    for (let from = part.offset, tries = 1; ; tries++) {
      const range = from === end ? '*' : `${from}-${end - 1}`
      const headers = { 'content-range': `bytes ${range}/${total}`, ...hash }
      const request: Request = { method: 'PUT', url, headers, responseType: 'json', ...(signal && { signal }) }
      const data = part.bytes.subarray(from - part.offset)
      const sent = await this.#send({ ...request, data }).catch(() => undefined)
      signal?.throwIfAborted()
      // Without the size of the object, because that could publish it without its digest.
      const question = { ...request, headers: { 'content-range': 'bytes */*' } }
      const answer = sent === undefined || isPassing(sent.status) ? await this.#asked(what, question) : sent
      if (answer.status === 200 || answer.status === 201) return answer.data as GcsObject
      if (answer.status !== RESUME) throw await this.#refused(answer, what)
      const stored = storedOf(answer)
      if (stored === end && !part.isLast) return undefined
      if (stored < part.offset || tries === TRIES)
        throw new StoreError('unavailable', `${what}: ${stored} of ${end} bytes have arrived after ${tries} tries`)
      from = stored
      await pause(Math.min(FIRST_PAUSE_MS * 2 ** (tries - 1), LAST_PAUSE_MS), undefined, { signal }).catch(() =>
        signal?.throwIfAborted(),
      )
    }
  }

  /**
   * Compares size and digest of the stored object with the sent bytes, for services that ignore the digest of the last
   * part. Deletes only the generation of this upload, because another writer may have replaced it.
   */
  async #requireSame({ key, size, md5 }: Upload, object: GcsObject): Promise<void> {
    const digest = md5.digest('base64')
    if (Number(object.size) === size && (object.md5Hash ?? digest) === digest) return
    if (object.generation !== undefined) await this.delete(key, object.generation)
    const found = `${object.size} bytes with the MD5 ${object.md5Hash}`
    throw new StoreError('refused', `PUT ${this.address(key)}: ${found} were stored, ${size} with ${digest} were sent`)
  }

  #url(path: string): string {
    return new URL(
      `/storage/v1/b/${encodeURIComponent(this.#options.bucket)}/${path}`,
      this.#options.endpoint ?? ENDPOINT,
    ).href
  }

  /** Sends a request with a token, with retries. Throws the error of the store. */
  async #asked(what: string, request: Request): Promise<Answer> {
    const client = await this.#authenticated(what, request.signal)
    try {
      const answer = await client.request({ ...this.#sent(request), retryConfig: RETRIES })
      if (isDone(answer.status)) return answer
      throw await this.#refused(answer, what)
    } catch (error) {
      request.signal?.throwIfAborted()
      if (error instanceof StoreError) throw error
      const { response } = error as { response?: Answer }
      throw response === undefined ? unanswered(what, error) : await this.#refused(response, what)
    }
  }

  /** Returns a client that has a token. */
  async #authenticated(what: string, signal: Request['signal']): Promise<AuthClient> {
    try {
      const client = await this.#client
      await client.getAccessToken()
      return client
    } catch (error) {
      signal?.throwIfAborted()
      const isKey = this.#options.credentials !== undefined
      const advice = isKey ? 'is the key of the service account still valid, and the clock right?' : ADVICE_ON_IDENTITY
      const { response } = error as { response?: Answer }
      const reason = response === undefined && isKey ? 'unavailable' : 'refused'
      // Requests to the metadata server have no credentials that its text could repeat.
      const isText = isKey && typeof response?.data === 'string'
      const said = isText ? statusOf(response.status) : textOf(error)
      throw new StoreError(reason, `${what}: no credentials: ${said}: ${advice}`)
    }
  }

  /** Sends a request to the URL of an upload once. The URL needs no token. */
  async #send(request: Request): Promise<Answer> {
    return (await this.#client).transporter.request({ ...this.#sent(request), retryConfig: { retry: 0 } })
  }

  #sent(request: Request): Request {
    const agent = chooser(this.#agents)
    const validateStatus = (status: number) => !isPassing(status)
    return { ...request, agent, redirect: 'manual', validateStatus, adapter: withStream }
  }

  async #refused({ status, data }: Answer, what: string): Promise<StoreError> {
    const body = data instanceof Readable ? Buffer.concat(await data.toArray()).toString() : data
    const message = messageOf(body)
    const said = message === undefined ? statusOf(status) : `${status} ${withoutUrls(message).slice(0, MOST_SAID)}`
    return new StoreError(REASONS[status] ?? 'refused', `${what}: ${said}${this.#adviceOn(status)}`)
  }

  #adviceOn(status: number): string {
    const { bucket, endpoint, credentials } = this.#options
    const place = endpoint === undefined ? '' : ` (endpoint ${endpoint})`
    if (status === 401)
      return `: ${credentials === undefined ? ADVICE_ON_IDENTITY : 'renew access-token or credentials.json in the Secret'}${place}`
    if (status === 403) return `: grant roles/storage.objectAdmin on the bucket ${bucket} to the account${place}`
    if (status === 404) return `: is there such an object, and the bucket ${bucket}?${place}`
    return ''
  }
}

const ADVICE_ON_IDENTITY =
  'name a Secret, or bind the ServiceAccount of the pod to the bucket by Workload Identity Federation for GKE'

const chooser =
  ({ http, https }: Agents) =>
  ({ protocol }: URL) =>
    protocol === 'https:' ? https : http

/** Sends a body as a stream: node-fetch 3 ends the process when a request with another body is aborted. */
const withStream: NonNullable<Request['adapter']> = (options, send) => {
  const { body, headers } = options
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) return send(options)
  headers.set('content-length', String(Buffer.byteLength(body)))
  return send({ ...options, body: Readable.from([body], { objectMode: false }) })
}

async function clientOf(credentials: GcsCredentials | undefined, agents: Agents): Promise<AuthClient> {
  const transporterOptions = { agent: chooser(agents) }
  if (credentials === undefined)
    return new GoogleAuth({ scopes: SCOPE, clientOptions: { transporterOptions } }).getClient()
  if ('accessToken' in credentials) {
    const client = new OAuth2Client({ transporterOptions })
    client.setCredentials({ access_token: credentials.accessToken })
    return client
  }
  const { client_email: email, private_key: key, private_key_id: keyId } = credentials.serviceAccount
  return new JWT({ email, key, scopes: [SCOPE], transporterOptions, ...(keyId !== undefined && { keyId }) })
}

const RETRIES = {
  retry: TRIES - 1,
  noResponseRetries: TRIES - 1,
  retryDelay: FIRST_PAUSE_MS,
  maxRetryDelay: LAST_PAUSE_MS,
  httpMethodsToRetry: ['GET', 'POST', 'PUT', 'DELETE'],
}

/** Whether a status is temporary: overload, time-out, or a gateway without its server. */
const isPassing = (status: number): boolean => [408, 429, 500, 502, 503, 504].includes(status)

const isDone = (status: number): boolean => (status >= 200 && status < 300) || status === RESUME

const REASONS: Record<number, StoreReason> = { 404: 'missing', 412: 'exists' }

/** Returns the offset at which an upload continues. The header is missing as long as nothing is stored. */
function storedOf({ headers }: Answer): number {
  const [, last] = /^bytes=0-(\d+)$/.exec(headers.get('range') ?? '') ?? []
  return last === undefined ? 0 : Number(last) + 1
}

/** The characters of an answer that an error shows. */
const MOST_SAID = 200

/** Returns the message of Google in an answer. Undefined: the answer has none, and may be of another server. */
function messageOf(body: unknown): string | undefined {
  const { error } = ((typeof body === 'string' ? parsed(body) : body) ?? {}) as { error?: { message?: unknown } }
  const message = error?.message
  return typeof message === 'string' && message !== '' ? message : undefined
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
