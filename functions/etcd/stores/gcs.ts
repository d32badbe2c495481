import { createHash, createSign, type Hash } from 'node:crypto'
import { doubling, pause } from '#primitives'
import {
  FIRST_PAUSE_MS,
  type HttpAnswer,
  HttpClient,
  type HttpRequest,
  isPassing,
  LAST_PAUSE_MS,
  rangeHeader,
  received,
  soon,
  TRIES,
} from './http.ts'
import { type Part, partsOf } from './parts.ts'
import {
  type Connection,
  type DescribedObject,
  encode,
  encodeQuery,
  type GetOptions,
  type Metadata,
  MOST_KEYS,
  type PutOptions,
  type Store,
  type StoredObject,
  StoreError,
  type StoreReason,
} from './types.ts'

export interface GcsOptions extends Connection {
  bucket: string
  credentials: GcsCredentials
}

const ENDPOINT = 'https://storage.googleapis.com'
const RESUME = 308

type Unauthorized = Omit<HttpRequest, 'headers'> & { headers?: Record<string, string> | undefined }

/** An upload that is under way. */
interface Upload {
  key: string
  url: URL
  md5: Hash
  size: number
}

interface GcsObject {
  name: string
  size: string
  generation?: string
  md5Hash?: string
  metadata?: Metadata
}

/** A store in Google Cloud Storage, by its JSON API. */
export class GcsStore implements Store {
  readonly #http: HttpClient
  readonly #options: GcsOptions
  readonly #base: URL
  readonly #tokens: TokenSource

  constructor(options: GcsOptions) {
    this.#options = options
    this.#http = new HttpClient(options)
    this.#base = new URL(options.endpoint ?? ENDPOINT)
    this.#tokens = new TokenSource(this.#http, options.credentials)
  }

  address(key: string): string {
    return `gs://${this.#options.bucket}/${key}`
  }

  /** Stores an object in one part after the other: a resumable upload has one end, to which parts are appended. */
  async put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<number> {
    const upload: Upload = { key, url: await this.#begin(key, options), md5: createHash('md5'), size: 0 }
    try {
      for await (const part of partsOf(source)) {
        upload.md5.update(part.bytes)
        upload.size += part.bytes.length
        const object = await this.#append(upload, part, options.signal)
        part.release()
        if (object) await this.#requireSame(upload, object)
      }
      return upload.size
    } catch (error) {
      await this.#http.once({ method: 'DELETE', url: upload.url, headers: {}, signal: soon() }).catch(() => undefined)
      throw error
    }
  }

  async *get(key: string, { range, signal }: GetOptions = {}): AsyncGenerator<Uint8Array> {
    const headers = range && { range: rangeHeader(range) }
    const what = `GET ${this.address(key)}`
    const url = this.#object(key, { alt: 'media' })
    const prepare = () => this.#authorized({ method: 'GET', url, headers, signal })
    yield* received(this.#http, prepare, what, this.#errorOf)
  }

  async *list(prefix: string): AsyncGenerator<StoredObject> {
    const fields = 'items(name,size),nextPageToken'
    for (let token: string | undefined = ''; token !== undefined; ) {
      const query: Record<string, string> = {
        prefix,
        fields,
        maxResults: String(this.#options.pageSize ?? MOST_KEYS),
        ...(token !== '' && { pageToken: token }),
      }
      const { text } = await this.#done('GET', this.#object(undefined, query), `LIST ${this.address(prefix)}`)
      const page = JSON.parse(text) as { items?: GcsObject[]; nextPageToken?: string }
      for (const { name, size } of page.items ?? []) yield { key: name, size: Number(size) }
      token = page.nextPageToken || undefined
    }
  }

  async head(key: string, signal?: AbortSignal): Promise<DescribedObject | undefined> {
    const what = `GET ${this.address(key)} (metadata)`
    const url = this.#object(key, { fields: 'name,size,metadata' })
    const { status, text } = await this.#done('GET', url, what, { accept: [404], signal })
    if (status === 404) return undefined
    const { size, metadata = {} } = JSON.parse(text) as GcsObject
    return { key, size: Number(size), metadata }
  }

  async delete(key: string): Promise<void> {
    await this.#done('DELETE', this.#object(key), `DELETE ${this.address(key)}`, { accept: [404] })
  }

  /** Returns the URL of a new upload. The URL needs no token. */
  async #begin(key: string, { metadata, ifAbsent = false, signal }: PutOptions): Promise<URL> {
    const { bucket } = this.#options
    const query = { uploadType: 'resumable', name: key, ...(ifAbsent && { ifGenerationMatch: '0' }) }
    const url = new URL(`/upload/storage/v1/b/${encode(bucket)}/o?${encodeQuery(query)}`, this.#base)
    const body = Buffer.from(JSON.stringify({ contentType: 'application/octet-stream', metadata }))
    const headers = { 'content-type': 'application/json' }
    const what = `POST ${this.address(key)} (begin)`
    const answer = await this.#http.answer(() => this.#authorized({ method: 'POST', url, headers, body, signal }), what)
    if (answer.status === 200 && answer.headers.location !== undefined)
      return new URL(answer.headers.location, this.#base)
    throw this.#errorOf(answer, what)
  }

  /**
   * Sends a part. After a lost answer, asks the service how much has arrived, and sends only the rest, because bytes
   * that are sent twice could be stored twice. Returns the object after the last part, which has the digest of all
   * bytes: the service publishes nothing else, and keeps the former object.
   */
  async #append(
    { key, url, md5 }: Upload,
    part: Part,
    signal: AbortSignal | undefined,
  ): Promise<GcsObject | undefined> {
    const hash = part.isLast ? { 'x-goog-hash': `md5=${md5.copy().digest('base64')}` } : undefined
    const end = part.offset + part.bytes.length
    const total = part.isLast ? String(end) : '*'
    const what = `PUT ${this.address(key)}`
    const next = doubling(FIRST_PAUSE_MS, LAST_PAUSE_MS)
    for (let from = part.offset, tries = 1; ; tries++) {
      const range = from === end ? '*' : `${from}-${end - 1}`
      const body = part.bytes.subarray(from - part.offset)
      const headers = { 'content-range': `bytes ${range}/${total}`, ...hash }
      const request = { method: 'PUT', url, headers, body, signal }
      const sent = await this.#http.once(request).catch(() => undefined)
      signal?.throwIfAborted()
      const answer = sent === undefined || isPassing(sent.status) ? await this.#asked(url, what, signal) : sent
      if (answer.status === 200 || answer.status === 201) return JSON.parse(answer.text) as GcsObject
      if (answer.status !== RESUME) throw this.#errorOf(answer, what)
      const stored = storedOf(answer)
      if (stored === end && !part.isLast) return undefined
      if (stored < part.offset || tries === TRIES)
        throw new StoreError('unavailable', `${what}: ${stored} of ${end} bytes have arrived after ${tries} tries`)
      from = stored
      await pause(next(), signal)
    }
  }

  /** Asks how much has arrived. Without the size of the object, because that could publish it without its digest. */
  #asked(url: URL, what: string, signal: AbortSignal | undefined): Promise<HttpAnswer> {
    return this.#http.answer(() => ({ method: 'PUT', url, headers: { 'content-range': 'bytes */*' }, signal }), what)
  }

  /**
   * Compares size and digest of the stored object with the sent bytes, for services that ignore the digest of the last
   * part. Deletes only the generation of this upload, because another writer may have replaced it.
   */
  async #requireSame({ key, size, md5 }: Upload, object: GcsObject): Promise<void> {
    const digest = md5.digest('base64')
    if (Number(object.size) === size && (object.md5Hash ?? digest) === digest) return
    const { generation } = object
    if (generation !== undefined)
      await this.#done('DELETE', this.#object(key, { generation }), `DELETE ${this.address(key)}`, { accept: [404] })
    const found = `${object.size} bytes with the MD5 ${object.md5Hash}`
    throw new StoreError('refused', `PUT ${this.address(key)}: ${found} were stored, ${size} with ${digest} were sent`)
  }

  #done(
    method: string,
    url: URL,
    what: string,
    { accept = [], signal }: { accept?: number[]; signal?: AbortSignal } = {},
  ): Promise<HttpAnswer> {
    return this.#http.done(() => this.#authorized({ method, url, signal }), what, this.#errorOf, accept)
  }

  async #authorized({ headers, ...request }: Unauthorized): Promise<HttpRequest> {
    return { ...request, headers: { ...headers, authorization: `Bearer ${await this.#tokens.token()}` } }
  }

  #object(key: string | undefined, query: Record<string, string> = {}): URL {
    const path = `/storage/v1/b/${encode(this.#options.bucket)}/o${key === undefined ? '' : `/${encode(key)}`}`
    return new URL(`${path}?${encodeQuery(query)}`, this.#base)
  }

  #errorOf = ({ status, text }: HttpAnswer, what: string): StoreError => {
    const advice = adviceOn(status, this.#options)
    return new StoreError(REASONS[status] ?? 'refused', `${what}: ${status} ${messageOf(text)}${advice}`)
  }
}

const REASONS: Record<number, StoreReason> = { 404: 'missing', 412: 'exists' }

/** Returns the offset at which an upload continues. The header is missing as long as nothing is stored. */
function storedOf({ headers }: HttpAnswer): number {
  const [, last] = /^bytes=0-(\d+)$/.exec(String(headers.range)) ?? []
  return last === undefined ? 0 : Number(last) + 1
}

function adviceOn(status: number, { bucket, endpoint }: GcsOptions): string {
  const place = endpoint === undefined ? '' : ` (endpoint ${endpoint})`
  if (status === 401) return `: renew access-token or credentials.json in the Secret${place}`
  if (status === 403) return `: grant roles/storage.objectAdmin on the bucket ${bucket} to the account${place}`
  if (status === 404) return `: is there such an object, and the bucket ${bucket}?${place}`
  return ''
}

function messageOf(text: string): string {
  try {
    return (JSON.parse(text) as { error?: { message?: string } }).error?.message ?? ''
  } catch {
    return text.slice(0, 200)
  }
}

/** A token that was requested elsewhere, or the key of a service account, with which tokens are requested. */
export type GcsCredentials = { accessToken: string } | { serviceAccount: ServiceAccountKey }

/** The fields of the file credentials.json. */
export interface ServiceAccountKey {
  client_email: string
  private_key: string
  private_key_id?: string
  token_uri?: string
}

const SCOPE = 'https://www.googleapis.com/auth/devstorage.read_write'
const TOKEN_URI = 'https://oauth2.googleapis.com/token'
const GRANT = 'urn:ietf:params:oauth:grant-type:jwt-bearer'
const LIFE_SECONDS = 3600
/** How long before its expiry a token is renewed. */
const SPARE_MS = 300_000

/** Parses the key file. Throws an Error that names the missing field, without any value of the file. */
export function parseServiceAccount(text: string): ServiceAccountKey {
  const file = parsed(text) as Partial<ServiceAccountKey> & { type?: string }
  if (file.type !== undefined && file.type !== 'service_account')
    throw new Error(
      `the file credentials.json is of the type ${JSON.stringify(file.type)}: give the key of a service account`,
    )
  const { client_email, private_key } = file
  if (client_email === undefined || private_key === undefined)
    throw new Error(
      'the file credentials.json lacks client_email or private_key: give the JSON key of a service account',
    )
  return { client_email, private_key, private_key_id: file.private_key_id, token_uri: file.token_uri }
}

function parsed(text: string): object {
  try {
    return JSON.parse(text) as object
  } catch {
    throw new Error('the file credentials.json is not JSON: give the JSON key of a service account')
  }
}

/** Provides access tokens for requests: requested when the first is needed, and again before each expires. */
export class TokenSource {
  readonly #http: HttpClient
  readonly #credentials: GcsCredentials
  #token: { text: string; until: number } | undefined

  constructor(http: HttpClient, credentials: GcsCredentials) {
    this.#http = http
    this.#credentials = credentials
  }

  async token(): Promise<string> {
    if ('accessToken' in this.#credentials) return this.#credentials.accessToken
    if (this.#token === undefined || Date.now() > this.#token.until - SPARE_MS)
      this.#token = await this.#draw(this.#credentials.serviceAccount)
    return this.#token.text
  }

  async #draw(account: ServiceAccountKey): Promise<{ text: string; until: number }> {
    const url = new URL(account.token_uri ?? TOKEN_URI)
    const what = `POST ${url.href} for ${account.client_email}`
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const { status, text } = await this.#http.answer(() => {
      const body = new URLSearchParams({ grant_type: GRANT, assertion: assertion(account, url.href, Date.now()) })
      return { method: 'POST', url, headers, body: Buffer.from(body.toString()) }
    }, what)
    if (status !== 200)
      throw new StoreError(
        'refused',
        `${what}: ${status}: is the key of the service account still valid, and the clock right?`,
      )
    const { access_token, expires_in = LIFE_SECONDS } = JSON.parse(text) as {
      access_token: string
      expires_in?: number
    }
    return { text: access_token, until: Date.now() + expires_in * 1000 }
  }
}

/** Returns a JSON Web Token, signed with RS256. */
function assertion(
  { client_email, private_key, private_key_id }: ServiceAccountKey,
  audience: string,
  now: number,
): string {
  const issued = Math.floor(now / 1000)
  const head = { alg: 'RS256', typ: 'JWT', ...(private_key_id !== undefined && { kid: private_key_id }) }
  const claims = { iss: client_email, scope: SCOPE, aud: audience, iat: issued, exp: issued + LIFE_SECONDS }
  const text = [head, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.')
  return `${text}.${createSign('RSA-SHA256').update(text).sign(private_key, 'base64url')}`
}
