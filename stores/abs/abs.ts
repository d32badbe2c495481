import { createHash, randomUUID } from 'node:crypto'
import { forEachAtMost } from '#primitives'
import { StoreError } from '../errors.ts'
import { type HttpAnswer, HttpClient, soon } from '../http.ts'
import { encodePath, encodeQuery } from '../keys.ts'
import { PARTS_UNDER_WAY, partsOf } from '../parts.ts'
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
import { absError } from './answers.ts'
import type { AbsOptions } from './options.ts'
import { sharedKey } from './sign.ts'

const VERSION = '2021-12-02'
const METADATA = 'x-ms-meta-'
/** By this an upload is known whose answer got lost. */
const UPLOAD = 'fairlead_upload'

/** Block blobs of Azure Blob Storage. */
export class AbsStore implements Store {
  readonly #http: HttpClient
  readonly #options: AbsOptions
  readonly #base: URL

  constructor(options: AbsOptions) {
    this.#options = options
    this.#http = new HttpClient(options)
    this.#base = new URL(options.endpoint ?? `https://${options.account}.blob.${suffixOf(options.cloud)}`)
  }

  address(key: string): string {
    return `abs://${this.#options.container}/${key}`
  }

  /** Blocks that no list names are invisible, and are removed by the service after a week. */
  async put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<number> {
    const { signal } = options
    const mark = randomUUID()
    const failed = new AbortController()
    const signals = signal === undefined ? failed.signal : AbortSignal.any([signal, failed.signal])
    const blocks: string[] = []
    let size = 0
    try {
      await forEachAtMost(PARTS_UNDER_WAY, partsOf(source), async ({ number, bytes, release }) => {
        size += bytes.length
        const id = Buffer.from(`${mark}-${String(number).padStart(5, '0')}`).toString('base64')
        blocks[number - 1] = id
        const headers = { 'content-md5': createHash('md5').update(bytes).digest('base64') }
        const query = { comp: 'block', blockid: id }
        if (bytes.length > 0) await this.#done('PUT', key, { query, headers, body: bytes, signal: signals })
        else blocks.pop()
        release()
      })
    } catch (error) {
      failed.abort(error)
      throw error
    }
    await this.#commit(key, blocks, mark, options)
    return size
  }

  async *get(key: string, { range, signal }: GetOptions = {}): AsyncGenerator<Uint8Array> {
    const headers = range && { range: rangeHeader(range) }
    const what = `GET ${this.address(key)}`
    const answer = await this.#http.stream(() => this.#signed('GET', key, { headers, signal }), what)
    yield* received(answer, what, (failure) => this.#error(failure, what))
  }

  async *list(prefix: string): AsyncGenerator<StoredObject> {
    for (let marker: string | undefined = ''; marker !== undefined; ) {
      const query: Record<string, string> = {
        restype: 'container',
        comp: 'list',
        maxresults: String(this.#options.pageSize ?? MOST_KEYS),
        prefix,
        ...(marker !== '' && { marker }),
      }
      const { text } = await this.#done('GET', '', { query })
      for (const entry of elements(text, 'Blob'))
        yield { key: textOf(entry, 'Name') ?? '', size: Number(textOf(entry, 'Content-Length')) }
      marker = textOf(text, 'NextMarker') || undefined
    }
  }

  async head(key: string, signal?: AbortSignal): Promise<DescribedObject | undefined> {
    const what = `HEAD ${this.address(key)}`
    const answer = await this.#http.answer(() => this.#signed('HEAD', key, { signal }), what)
    if (answer.status === 404) return undefined
    if (answer.status !== 200) throw this.#error(answer, what)
    // Names of metadata are C# identifiers: no dashes.
    const metadata = Object.entries(answer.headers).flatMap(([name, value]) =>
      name.startsWith(METADATA) ? [[name.slice(METADATA.length).replaceAll('_', '-'), String(value)]] : [],
    )
    return { key, size: Number(answer.headers['content-length']), metadata: Object.fromEntries(metadata) }
  }

  async delete(key: string): Promise<void> {
    await this.#done('DELETE', key, { accept: [404] })
  }

  async #commit(key: string, blocks: readonly string[], mark: string, options: PutOptions): Promise<void> {
    const { metadata, ifAbsent = false, signal } = options
    const named = Object.entries(metadata).map(([name, value]) => [`${METADATA}${name.replaceAll('-', '_')}`, value])
    const body = Buffer.from(
      `<?xml version="1.0" encoding="utf-8"?><BlockList>${blocks.map((id) => `<Latest>${id}</Latest>`).join('')}</BlockList>`,
    )
    const headers = {
      ...Object.fromEntries(named),
      [`${METADATA}${UPLOAD}`]: mark,
      'x-ms-blob-content-type': 'application/octet-stream',
      ...(ifAbsent && { 'if-none-match': '*' }),
    }
    try {
      await this.#done('PUT', key, { query: { comp: 'blocklist' }, headers, body, signal })
    } catch (error) {
      // The first answer may have been lost: the blob that is there tells by which upload it came.
      const isOurs =
        (await this.head(key, soon()).catch(() => undefined))?.metadata[UPLOAD.replaceAll('_', '-')] === mark
      if (!isOurs) throw error
    }
  }

  async #done(method: string, key: string, options: RequestOptions & { accept?: number[] } = {}): Promise<HttpAnswer> {
    const what = `${method} ${this.address(key)}`
    const answer = await this.#http.answer(() => this.#signed(method, key, options), what)
    if ((answer.status >= 200 && answer.status < 300) || options.accept?.includes(answer.status)) return answer
    throw this.#error(answer, what)
  }

  #signed(method: string, key: string, { query = {}, headers = {}, body, signal }: RequestOptions = {}) {
    const url = new URL(this.#base)
    const path = [url.pathname.replace(/\/$/, ''), this.#options.container, ...(key === '' ? [] : [encodePath(key)])]
    url.pathname = path.join('/')
    url.search = encodeQuery(query)
    const own = { ...headers, 'x-ms-version': VERSION, 'x-ms-date': new Date().toUTCString() }
    return { method, url, headers: sharedKey({ method, url, headers: own, body }, this.#options), body, signal }
  }

  #error(answer: HttpAnswer, what: string): StoreError {
    return absError(answer, what, this.#options)
  }
}

interface RequestOptions {
  query?: Record<string, string>
  headers?: Record<string, string> | undefined
  body?: Uint8Array
  signal?: AbortSignal | undefined
}

const SUFFIXES: Record<string, string> = {
  AzurePublicCloud: 'core.windows.net',
  AzureChinaCloud: 'core.chinacloudapi.cn',
  AzureUSGovernmentCloud: 'core.usgovcloudapi.net',
  AzureGermanCloud: 'core.cloudapi.de',
}

function suffixOf(cloud = 'AzurePublicCloud'): string {
  const suffix = SUFFIXES[cloud]
  if (suffix !== undefined) return suffix
  const known = Object.keys(SUFFIXES).join(', ')
  throw new StoreError(
    'refused',
    `cloud is ${JSON.stringify(cloud)}: write one of ${known} into the key cloud of the Secret`,
  )
}
