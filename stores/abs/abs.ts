import { createHash, randomUUID } from 'node:crypto'
import { describedBy, publish, UPLOAD } from '../described.ts'
import { StoreError } from '../errors.ts'
import { type HttpAnswer, HttpClient, type HttpRequest, type RequestOptions, soon } from '../http.ts'
import { encodePath, encodeQuery } from '../keys.ts'
import { sendParts } from '../parts.ts'
import { rangeHeader, received } from '../received.ts'
import {
  type DescribedObject,
  type GetOptions,
  type Metadata,
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

/** A store of block blobs in Azure Blob Storage. */
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

  /** Stores an object. Blocks that are not in a block list are invisible, and the service removes them after a week. */
  async put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<number> {
    const mark = randomUUID()
    const blocks: string[] = []
    const size = await sendParts(source, options.signal, async ({ number, bytes }, signal) => {
      if (bytes.length === 0) return
      const id = Buffer.from(`${mark}-${String(number).padStart(5, '0')}`).toString('base64')
      blocks[number - 1] = id
      const headers = { 'content-md5': createHash('md5').update(bytes).digest('base64') }
      await this.#done('PUT', key, { query: { comp: 'block', blockid: id }, headers, body: bytes, signal })
    })
    await publish(
      () => this.#commit(key, blocks, mark, options),
      mark,
      () => this.head(key, soon()),
    )
    return size
  }

  async *get(key: string, { range, signal }: GetOptions = {}): AsyncGenerator<Uint8Array> {
    const headers = range && { range: rangeHeader(range) }
    const prepare = () => this.#signed('GET', key, { headers, signal })
    yield* received(this.#http, prepare, `GET ${this.address(key)}`, this.#errorOf)
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
    const answer = await this.#done('HEAD', key, { accept: [404], signal })
    if (answer.status === 404) return undefined
    const { metadata, ...object } = describedBy(key, answer, METADATA)
    return { ...object, metadata: renamed(metadata, (name) => name.replaceAll('_', '-')) }
  }

  async delete(key: string): Promise<void> {
    await this.#done('DELETE', key, { accept: [404] })
  }

  async #commit(key: string, blocks: readonly string[], mark: string, options: PutOptions): Promise<void> {
    const { metadata, ifAbsent = false, signal } = options
    const body = Buffer.from(
      `<?xml version="1.0" encoding="utf-8"?><BlockList>${blocks.map((id) => `<Latest>${id}</Latest>`).join('')}</BlockList>`,
    )
    const headers = {
      ...renamed({ ...metadata, [UPLOAD]: mark }, (name) => `${METADATA}${name.replaceAll('-', '_')}`),
      'x-ms-blob-content-type': 'application/octet-stream',
      ...(ifAbsent && { 'if-none-match': '*' }),
    }
    await this.#done('PUT', key, { query: { comp: 'blocklist' }, headers, body, signal })
  }

  #done(method: string, key: string, options: RequestOptions & { accept?: number[] } = {}): Promise<HttpAnswer> {
    const prepare = () => this.#signed(method, key, options)
    return this.#http.done(prepare, `${method} ${this.address(key)}`, this.#errorOf, options.accept)
  }

  #signed(method: string, key: string, options: RequestOptions): HttpRequest {
    const { query = {}, headers = {}, body, signal } = options
    const url = new URL(this.#base)
    const path = [url.pathname.replace(/\/$/, ''), this.#options.container, ...(key === '' ? [] : [encodePath(key)])]
    url.pathname = path.join('/')
    url.search = encodeQuery(query)
    const own = { ...headers, 'x-ms-version': VERSION, 'x-ms-date': new Date().toUTCString() }
    return { method, url, headers: sharedKey({ method, url, headers: own, body }, this.#options), body, signal }
  }

  #errorOf = (answer: HttpAnswer, what: string): StoreError => absError(answer, what, this.#options)
}

/** Renames metadata, because their names are C# identifiers and allow no dashes. */
const renamed = (metadata: Metadata, rename: (name: string) => string): Record<string, string> =>
  Object.fromEntries(Object.entries(metadata).map(([name, value]) => [rename(name), value]))

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
