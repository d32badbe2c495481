import { randomUUID } from 'node:crypto'
import { isIP } from 'node:net'
import { forEachAtMost } from '#primitives'
import { StoreError } from '../errors.ts'
import { type HttpAnswer, HttpClient, soon } from '../http.ts'
import { encodePath, encodeQuery } from '../keys.ts'
import { PARTS_UNDER_WAY, type Part, partsOf } from '../parts.ts'
import { rangeHeader, received } from '../received.ts'
import {
  type DescribedObject,
  type GetOptions,
  MOST_KEYS,
  type PutOptions,
  type Store,
  type StoredObject,
} from '../types.ts'
import { elements, textOf } from '../xml.ts'
import { s3Error } from './answers.ts'
import type { S3Options } from './options.ts'
import { signed } from './sign.ts'

const METADATA = 'x-amz-meta-'
/** By this an upload is known whose answer got lost. */
const UPLOAD = 'fairlead-upload'

/** S3, and whatever speaks its REST API. */
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
    const failed = new AbortController()
    const signals = signal === undefined ? failed.signal : AbortSignal.any([signal, failed.signal])
    try {
      const tags: string[] = []
      let size = 0
      await forEachAtMost(PARTS_UNDER_WAY, partsOf(source), async (part) => {
        size += part.bytes.length
        tags[part.number - 1] = await this.#putPart(key, uploadId, part, signals)
      })
      await this.#complete(key, { uploadId, tags, ifAbsent, mark, signal })
      return size
    } catch (error) {
      failed.abort(error)
      await this.#abort(key, uploadId)
      throw error
    }
  }

  async *get(key: string, { range, signal }: GetOptions = {}): AsyncGenerator<Uint8Array> {
    const headers = range && { range: rangeHeader(range) }
    const what = `GET ${this.address(key)}`
    const answer = await this.#http.stream(() => this.#signed('GET', key, { headers, signal }), what)
    yield* received(answer, what, (failure) => this.#error(failure, what))
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
    const what = `HEAD ${this.address(key)}`
    const answer = await this.#http.answer(() => this.#signed('HEAD', key, { signal }), what)
    if (answer.status === 404) return undefined
    if (answer.status !== 200) throw this.#error(answer, what)
    const metadata = Object.entries(answer.headers).flatMap(([name, value]) =>
      name.startsWith(METADATA) ? [[name.slice(METADATA.length), String(value)]] : [],
    )
    return { key, size: Number(answer.headers['content-length']), metadata: Object.fromEntries(metadata) }
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

  async #putPart(key: string, uploadId: string, part: Part, signal: AbortSignal): Promise<string> {
    const query = { partNumber: String(part.number), uploadId }
    const { headers } = await this.#done('PUT', key, { query, body: part.bytes, signal })
    part.release()
    return headers.etag ?? ''
  }

  async #complete(key: string, upload: Completed): Promise<void> {
    const { uploadId, tags, ifAbsent, mark, signal } = upload
    const list = tags.map((tag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>${tag}</ETag></Part>`)
    const body = Buffer.from(`<CompleteMultipartUpload>${list.join('')}</CompleteMultipartUpload>`)
    const headers: Record<string, string> = ifAbsent ? { 'if-none-match': '*' } : {}
    const what = `POST ${this.address(key)} (complete)`
    const prepare = () => this.#signed('POST', key, { query: { uploadId }, headers, body, signal })
    try {
      const answer = await this.#http.answer(prepare, what)
      // S3 begins to answer before it is done: the status is then 200, whatever comes of it.
      if (answer.status !== 200 || elements(answer.text, 'Error').length > 0) throw this.#error(answer, what)
    } catch (error) {
      // The first answer may have been lost: the object that is there tells by which upload it came.
      const isOurs = (await this.head(key, soon()).catch(() => undefined))?.metadata[UPLOAD] === mark
      if (!isOurs) throw error
    }
  }

  /** Parts that stay are paid for until a rule of the bucket removes them; the upload has failed already. */
  async #abort(key: string, uploadId: string): Promise<void> {
    await this.#done('DELETE', key, { query: { uploadId }, accept: [404], signal: soon() }).catch(() => undefined)
  }

  async #done(method: string, key: string, options: RequestOptions & { accept?: number[] } = {}): Promise<HttpAnswer> {
    const what = `${method} ${this.address(key)}`
    const answer = await this.#http.answer(() => this.#signed(method, key, options), what)
    if ((answer.status >= 200 && answer.status < 300) || options.accept?.includes(answer.status)) return answer
    throw this.#error(answer, what)
  }

  #signed(method: string, key: string, { query = {}, headers = {}, body, signal }: RequestOptions = {}) {
    const url = new URL(this.#base)
    url.pathname = `${this.#base.pathname.replace(/\/$/, '')}/${encodePath(key)}`
    url.search = encodeQuery(query)
    const { region, credentials } = this.#options
    const request = { method, url, headers, body }
    return { ...request, signal, headers: signed(request, region, credentials, new Date()) }
  }

  #error(answer: HttpAnswer, what: string): StoreError {
    return s3Error(answer, what, this.#options)
  }
}

interface RequestOptions {
  query?: Record<string, string>
  headers?: Record<string, string> | undefined
  body?: Uint8Array
  signal?: AbortSignal | undefined
}

interface Completed {
  uploadId: string
  tags: readonly string[]
  ifAbsent: boolean
  mark: string
  signal: AbortSignal | undefined
}

/** Of the bucket. */
export function baseOf({ endpoint, bucket, region, pathStyle = false }: S3Options): URL {
  const partition = region.startsWith('cn-') ? 'amazonaws.com.cn' : 'amazonaws.com'
  const base = new URL(endpoint ?? `https://s3.${region}.${partition}`)
  const host = base.hostname.replace(/^\[|\]$/g, '')
  // The certificates of hosts cover one label: a bucket with dots would have more.
  const isInPath = pathStyle || isIP(host) !== 0 || (base.protocol === 'https:' && bucket.includes('.'))
  if (isInPath) base.pathname = `${base.pathname.replace(/\/$/, '')}/${bucket}`
  else base.hostname = `${bucket}.${base.hostname}`
  return base
}
