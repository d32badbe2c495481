import { createHash, createHmac, randomUUID } from 'node:crypto'
import { isIP } from 'node:net'
import {
  describedBy,
  type HttpAnswer,
  HttpClient,
  type HttpRequest,
  publish,
  type RequestOptions,
  rangeHeader,
  received,
  soon,
  UPLOAD,
} from './http.ts'
import { sendParts } from './parts.ts'
import {
  type Connection,
  type DescribedObject,
  encodePath,
  encodeQuery,
  type GetOptions,
  MOST_KEYS,
  type PutOptions,
  type Store,
  type StoredObject,
  StoreError,
  type StoreReason,
} from './types.ts'
import { elements, textOf } from './xml.ts'

const METADATA = 'x-amz-meta-'

/** A store in S3, or in a service with its REST API. */
export class S3Store implements Store {
  readonly #http: HttpClient
  readonly #options: S3Options
  readonly #base: URL

  constructor(options: S3Options) {
    this.#options = options
    this.#http = new HttpClient(options)
    this.#base = baseOf(options)
  }

  address(key: string): string {
    return `s3://${this.#options.bucket}/${key}`
  }

  async put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<number> {
    const { metadata, ifAbsent = false, signal } = options
    const mark = randomUUID()
    const uploadId = await this.#begin(key, { ...metadata, [UPLOAD]: mark }, signal)
    try {
      const tags: string[] = []
      const size = await sendParts(source, signal, async ({ number, bytes }, signals) => {
        const query = { partNumber: String(number), uploadId }
        const { headers } = await this.#done('PUT', key, { query, body: bytes, signal: signals })
        tags[number - 1] = headers.etag ?? ''
      })
      const finish = () => this.#complete(key, { uploadId, tags, ifAbsent, signal })
      await publish(finish, mark, () => this.head(key, soon()))
      return size
    } catch (error) {
      await this.#abort(key, uploadId)
      throw error
    }
  }

  async *get(key: string, { range, signal }: GetOptions = {}): AsyncGenerator<Uint8Array> {
    const headers = range && { range: rangeHeader(range) }
    const prepare = () => this.#signed('GET', key, { headers, signal })
    yield* received(this.#http, prepare, `GET ${this.address(key)}`, this.#errorOf)
  }

  async *list(prefix: string): AsyncGenerator<StoredObject> {
    for (let token: string | undefined = ''; token !== undefined; ) {
      const query: Record<string, string> = {
        'list-type': '2',
        'max-keys': String(this.#options.pageSize ?? MOST_KEYS),
        prefix,
        ...(token !== '' && { 'continuation-token': token }),
      }
      const { text } = await this.#done('GET', '', { query })
      for (const entry of elements(text, 'Contents'))
        yield { key: textOf(entry, 'Key') ?? '', size: Number(textOf(entry, 'Size')) }
      token = textOf(text, 'IsTruncated') === 'true' ? textOf(text, 'NextContinuationToken') : undefined
    }
  }

  async head(key: string, signal?: AbortSignal): Promise<DescribedObject | undefined> {
    const answer = await this.#done('HEAD', key, { accept: [404], signal })
    return answer.status === 404 ? undefined : describedBy(key, answer, METADATA)
  }

  async delete(key: string): Promise<void> {
    await this.#done('DELETE', key, { accept: [404] })
  }

  async #begin(key: string, metadata: Record<string, string>, signal: AbortSignal | undefined): Promise<string> {
    const named = Object.entries(metadata).map(([name, value]) => [`${METADATA}${name}`, value])
    const headers = { 'content-type': 'application/octet-stream', ...Object.fromEntries(named) }
    const { text } = await this.#done('POST', key, { query: { uploads: '' }, headers, signal })
    const uploadId = textOf(text, 'UploadId')
    if (uploadId !== undefined) return uploadId
    throw new StoreError(
      'refused',
      `POST ${this.address(key)}?uploads: the answer has no UploadId: is it S3 that answers?`,
    )
  }

  async #complete(key: string, upload: Completed): Promise<void> {
    const { uploadId, tags, ifAbsent, signal } = upload
    const list = tags.map((tag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>${tag}</ETag></Part>`)
    const body = Buffer.from(`<CompleteMultipartUpload>${list.join('')}</CompleteMultipartUpload>`)
    const headers: Record<string, string> = ifAbsent ? { 'if-none-match': '*' } : {}
    const what = `POST ${this.address(key)} (complete)`
    const prepare = () => this.#signed('POST', key, { query: { uploadId }, headers, body, signal })
    const answer = await this.#http.answer(prepare, what)
    // S3 begins to answer before it has finished: the status is then 200, even if the request fails later.
    if (answer.status !== 200 || elements(answer.text, 'Error').length > 0) throw this.#errorOf(answer, what)
  }

  /**
   * Aborts an upload. Its parts would be charged until a rule of the bucket removes them. Errors are ignored, because
   * the upload has failed already.
   */
  async #abort(key: string, uploadId: string): Promise<void> {
    await this.#done('DELETE', key, { query: { uploadId }, accept: [404], signal: soon() }).catch(() => undefined)
  }

  #done(method: string, key: string, options: RequestOptions & { accept?: number[] } = {}): Promise<HttpAnswer> {
    const prepare = () => this.#signed(method, key, options)
    return this.#http.done(prepare, `${method} ${this.address(key)}`, this.#errorOf, options.accept)
  }

  #signed(method: string, key: string, options: RequestOptions): HttpRequest {
    const { query = {}, headers = {}, body, signal } = options
    const url = new URL(this.#base)
    url.pathname = `${this.#base.pathname.replace(/\/$/, '')}/${encodePath(key)}`
    url.search = encodeQuery(query)
    const { region, credentials } = this.#options
    const request = { method, url, headers, body }
    return { ...request, signal, headers: signed(request, region, credentials, new Date()) }
  }

  #errorOf = (answer: HttpAnswer, what: string): StoreError => s3Error(answer, what, this.#options)
}

interface Completed {
  uploadId: string
  tags: readonly string[]
  ifAbsent: boolean
  signal: AbortSignal | undefined
}

/** Returns the base URL of the bucket. */
export function baseOf({ endpoint, bucket, region, pathStyle = false }: S3Options): URL {
  const partition = region.startsWith('cn-') ? 'amazonaws.com.cn' : 'amazonaws.com'
  const base = new URL(endpoint ?? `https://s3.${region}.${partition}`)
  const host = base.hostname.replace(/^\[|\]$/g, '')
  // A wildcard certificate covers one label only, so a bucket with dots must be in the path.
  const isInPath = pathStyle || isIP(host) !== 0 || (base.protocol === 'https:' && bucket.includes('.'))
  if (isInPath) base.pathname = `${base.pathname.replace(/\/$/, '')}/${bucket}`
  else base.hostname = `${bucket}.${base.hostname}`
  return base
}

const REASONS: Record<string, StoreReason> = {
  NoSuchKey: 'missing',
  PreconditionFailed: 'exists',
  ConditionalRequestConflict: 'exists',
}

/**
 * Returns the error that corresponds to an answer of S3, with a fix. An answer to HEAD has no body, so only its status
 * counts.
 */
function s3Error({ status, text }: HttpAnswer, what: string, options: S3Options): StoreError {
  const code = textOf(text, 'Code')
  const reason = REASONS[code ?? ''] ?? (status === 404 && code === undefined ? 'missing' : 'refused')
  const said = [status, code, textOf(text, 'Message')].filter((word) => word !== undefined && word !== '').join(' ')
  const advice = adviceOn(code, status, text, options)
  return new StoreError(reason, `${what}: ${said}${advice === undefined ? '' : `: ${advice}`}`)
}

function adviceOn(code: string | undefined, status: number, text: string, { bucket, region, endpoint }: S3Options) {
  const place = `the region is ${region}${endpoint === undefined ? '' : ` and the endpoint ${endpoint}`}`
  switch (code ?? '') {
    case 'NoSuchKey':
      return 'there is no such object'
    case 'NoSuchBucket':
      return `create the bucket ${bucket}, or correct the first segment of the path; ${place}`
    case 'PermanentRedirect':
    case 'AuthorizationHeaderMalformed':
    case 'IllegalLocationConstraintException': {
      const wanted = textOf(text, 'Region')
      return `${place}: set region${wanted === undefined ? '' : ` = ${wanted}`} in the key config of the Secret`
    }
    case 'InvalidAccessKeyId':
    case 'SignatureDoesNotMatch':
      return 'correct aws_access_key_id and aws_secret_access_key in the key credentials of the Secret'
    case 'ExpiredToken':
    case 'InvalidToken':
      return 'renew aws_session_token in the key credentials of the Secret'
    case 'RequestTimeTooSkewed':
      return 'set the clock of the node'
    default:
      return status === 403
        ? 'allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on the objects, and s3:ListBucket on the bucket, without which a missing object is answered with 403'
        : undefined
  }
}

export interface S3Options extends Connection, Profile {
  bucket: string
  /** True: the bucket is in the path of the URL, not in its host. Always so for endpoints that are IP addresses. */
  pathStyle?: boolean
}

/** The credentials of an account, or of a session, which also has a token. */
export interface S3Credentials {
  accessKeyId: string
  secretAccessKey: string
  sessionToken?: string
}

export interface SignedRequest {
  method: string
  url: URL
  /** The headers, with names in lower case. All of them are signed. */
  headers: Record<string, string>
  body?: Uint8Array
}

const ALGORITHM = 'AWS4-HMAC-SHA256'

/**
 * Returns the headers of the request with those of AWS Signature Version 4: date, digest of the body, token,
 * authorization. The URL must be encoded by encodePath() and encodeQuery() of ../keys.ts.
 */
export function signed(
  request: SignedRequest,
  region: string,
  credentials: S3Credentials,
  now: Date,
): Record<string, string> {
  const time = now.toISOString().replaceAll(/[-:]|\.\d{3}/g, '')
  const date = time.slice(0, 8)
  const { accessKeyId, secretAccessKey, sessionToken } = credentials
  const headers: Record<string, string> = {
    ...request.headers,
    host: request.url.host,
    'x-amz-date': time,
    'x-amz-content-sha256': sha256(request.body ?? ''),
    ...(sessionToken !== undefined && { 'x-amz-security-token': sessionToken }),
  }
  const names = Object.keys(headers).sort()
  const canonical = [
    request.method,
    request.url.pathname,
    request.url.search.slice(1),
    ...names.map((name) => `${name}:${headers[name]?.trim().replaceAll(/ +/g, ' ')}`),
    '',
    names.join(';'),
    headers['x-amz-content-sha256'],
  ].join('\n')
  const scope = `${date}/${region}/s3/aws4_request`
  const toSign = [ALGORITHM, time, scope, sha256(canonical)].join('\n')
  const key = [date, region, 's3', 'aws4_request'].reduce<Buffer | string>(hmac, `AWS4${secretAccessKey}`)
  const signature = hmac(key, toSign).toString('hex')
  const authorization = `${ALGORITHM} Credential=${accessKeyId}/${scope}, SignedHeaders=${names.join(';')}, Signature=${signature}`
  return { ...headers, authorization }
}

const sha256 = (data: Uint8Array | string): string => createHash('sha256').update(data).digest('hex')
const hmac = (key: Buffer | string, data: string): Buffer => createHmac('sha256', key).update(data).digest()

/** The files `credentials` and `config` of the AWS command line. */
export interface ProfileFiles {
  credentials: string
  config?: string
}

export interface Profile {
  credentials: S3Credentials
  region: string
}

const DEFAULT_REGION = 'us-east-1'

/** Reads the profile `default`. Throws an Error that names the file and the missing setting, without values. */
export function readProfile({ credentials, config = '' }: ProfileFiles): Profile {
  const own = section(credentials, ['default'])
  const common = section(config, ['default', 'profile default'])
  const setting = (name: string): string | undefined => own.get(name) ?? common.get(name)
  return {
    region: common.get('region') ?? own.get('region') ?? DEFAULT_REGION,
    credentials: {
      accessKeyId: required(setting('aws_access_key_id'), 'aws_access_key_id'),
      secretAccessKey: required(setting('aws_secret_access_key'), 'aws_secret_access_key'),
      sessionToken: setting('aws_session_token'),
    },
  }
}

function required(value: string | undefined, name: string): string {
  if (value !== undefined && value !== '') return value
  throw new Error(`the file credentials has no ${name} in its section [default]: write [default], then ${name} = …`)
}

function section(text: string, names: readonly string[]): Map<string, string> {
  const found = new Map<string, string>()
  let isWanted = false
  for (const line of text.split(/\r?\n/)) {
    const [, title] = /^\s*\[\s*([^\]]*?)\s*\]/.exec(line) ?? []
    if (title !== undefined) isWanted = names.includes(title)
    const [, name, value] = /^\s*([A-Za-z0-9_]+)\s*=\s*(.*?)\s*$/.exec(line) ?? []
    if (isWanted && name !== undefined && value !== undefined) found.set(name.toLowerCase(), value)
  }
  return found
}
