import { createHash, createHmac, randomUUID } from 'node:crypto'
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
  type Metadata,
  MOST_KEYS,
  type PutOptions,
  type Store,
  type StoredObject,
  StoreError,
  type StoreReason,
} from './types.ts'
import { elements, textOf } from './xml.ts'

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

const REASONS: Record<string, StoreReason> = {
  BlobNotFound: 'missing',
  BlobAlreadyExists: 'exists',
  ConditionNotMet: 'exists',
}

/**
 * Returns the error that corresponds to an answer of ABS, with a fix. An answer to HEAD has no body, but a header with
 * the code.
 */
function absError({ status, text, headers }: HttpAnswer, what: string, options: AbsOptions): StoreError {
  const code = textOf(text, 'Code') ?? headers['x-ms-error-code']?.toString()
  const reason = REASONS[code ?? ''] ?? 'refused'
  const said = [status, code].filter((word) => word !== undefined).join(' ')
  const advice = adviceOn(code, options)
  return new StoreError(reason, `${what}: ${said}${advice === undefined ? '' : `: ${advice}`}`)
}

function adviceOn(code: string | undefined, { account, container, endpoint }: AbsOptions): string | undefined {
  switch (code ?? '') {
    case 'BlobNotFound':
      return 'there is no such blob'
    case 'ContainerNotFound':
      return `create the container ${container} in the account ${account}, or correct the first segment of the path`
    case 'AuthenticationFailed':
    case 'AuthorizationFailure':
      return `correct storage-account (${account}) and storage-key in the Secret, and set the clock of the node${endpoint === undefined ? '' : `; the endpoint is ${endpoint}`}`
    case 'LeaseIdMissing':
    case 'BlobImmutableDueToPolicy':
      return 'the blob is protected: end its lease or its policy'
    default:
      return undefined
  }
}

export interface AbsOptions extends Connection, AbsAccount {
  container: string
  /** The name of the Azure cloud, such as `AzureChinaCloud`. Default: the public cloud. */
  cloud?: string
}

/** A storage account and one of its two keys, in base64. */
export interface AbsAccount {
  account: string
  key: string
}

/** The signed standard headers, in the order of the signature. */
const STANDARD = [
  'content-encoding',
  'content-language',
  'content-length',
  'content-md5',
  'content-type',
  'date',
  'if-modified-since',
  'if-match',
  'if-none-match',
  'if-unmodified-since',
  'range',
]

export interface AbsRequest {
  method: string
  url: URL
  /** The headers, with names in lower case. */
  headers: Record<string, string>
  body?: Uint8Array
}

/** Returns the headers of the request with the authorization of the scheme SharedKey. */
export function sharedKey(
  { method, url, headers, body }: AbsRequest,
  { account, key }: AbsAccount,
): Record<string, string> {
  // Since API version 2015, an empty body has an empty length in the signature.
  const all: Record<string, string> = { ...headers, 'content-length': body?.length ? String(body.length) : '' }
  const own = Object.keys(headers).filter((name) => name.startsWith('x-ms-'))
  const query = [...url.searchParams].map(([name, value]) => `${name.toLowerCase()}:${value}`)
  const text = [
    method,
    ...STANDARD.map((name) => all[name] ?? ''),
    ...own.sort().map((name) => `${name}:${headers[name]?.trim()}`),
    [`/${account}${url.pathname}`, ...query.sort()].join('\n'),
  ].join('\n')
  const signature = createHmac('sha256', Buffer.from(key, 'base64')).update(text).digest('base64')
  return { ...headers, authorization: `SharedKey ${account}:${signature}` }
}
