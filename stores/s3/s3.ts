import { randomUUID } from 'node:crypto'
import { isIP } from 'node:net'
import { describedBy, publish, UPLOAD } from '../described.ts'
import { StoreError } from '../errors.ts'
import { type HttpAnswer, HttpClient, type HttpRequest, type RequestOptions, soon } from '../http.ts'
import { encodePath, encodeQuery } from '../keys.ts'
import { sendParts } from '../parts.ts'
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
