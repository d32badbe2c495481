import { createHash, randomUUID } from 'node:crypto'
import { DefaultAzureCredential } from '@azure/identity'
import {
  BlobServiceClient,
  type BlockBlobClient,
  type ContainerClient,
  type RestError,
  StorageSharedKeyCredential,
} from '@azure/storage-blob'
import {
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
} from './connection.ts'
import { sendParts } from './parts.ts'
import {
  type Connection,
  type DescribedObject,
  type GetOptions,
  type Metadata,
  MOST_KEYS,
  type PutOptions,
  type Store,
  type StoredObject,
  StoreError,
  type StoreReason,
  unlessMissing,
} from './types.ts'

/** A storage account and one of its two keys, in base64. */
export interface AbsAccount {
  account: string
  key: string
}

export interface AbsOptions extends Connection {
  container: string
  /** Default: the identity of the pod, by the environment. The endpoint is then required. */
  credentials?: AbsAccount
  /** The name of the Azure cloud, such as `AzureChinaCloud`. Default: the public cloud. */
  cloud?: string
}

/** A store of block blobs in Azure Blob Storage. */
export class AbsStore implements Store {
  readonly #container: ContainerClient
  readonly #options: AbsOptions

  constructor(options: AbsOptions) {
    this.#options = options
    const { http, https } = agentsOf(options.ca)
    const url = urlOf(options)
    const { credentials } = options
    const pipeline = {
      retryOptions: { maxTries: TRIES, retryDelayInMs: FIRST_PAUSE_MS, maxRetryDelayInMs: LAST_PAUSE_MS },
      agent: new URL(url).protocol === 'https:' ? https : http,
      redirectOptions: { maxRetries: 0 },
    }
    const credential =
      credentials === undefined
        ? new DefaultAzureCredential()
        : new StorageSharedKeyCredential(credentials.account, credentials.key)
    this.#container = new BlobServiceClient(url, credential, pipeline).getContainerClient(options.container)
  }

  address(key: string): string {
    return `abs://${this.#options.container}/${key}`
  }

  /** Stores an object. Blocks that are not in a block list are invisible, and the service removes them after a week. */
  async put(key: string, source: AsyncIterable<Uint8Array>, options: PutOptions): Promise<number> {
    const { metadata, ifAbsent = false, signal } = options
    const mark = randomUUID()
    const blob = this.#blob(key)
    const blocks: string[] = []
    const size = await sendParts(source, signal, async ({ number, bytes }, abortSignal) => {
      if (bytes.length === 0) return
      const id = Buffer.from(`${mark}-${String(number).padStart(5, '0')}`).toString('base64')
      blocks[number - 1] = id
      const transactionalContentMD5 = createHash('md5').update(bytes).digest()
      await this.#asked(`PUT ${this.address(key)} (block ${number})`, abortSignal, () =>
        blob.stageBlock(id, bytes, bytes.length, { transactionalContentMD5, abortSignal }),
      )
    })
    const commit = () =>
      this.#asked(`PUT ${this.address(key)} (block list)`, signal, () =>
        blob.commitBlockList(blocks, {
          metadata: renamed({ ...metadata, [UPLOAD]: mark }, (name) => name.replaceAll('-', '_')),
          blobHTTPHeaders: { blobContentType: 'application/octet-stream' },
          ...(ifAbsent && { conditions: { ifNoneMatch: '*' } }),
          abortSignal: signal,
        }),
      )
    await publish(commit, mark, () => this.head(key, soon()))
    return size
  }

  async *get(key: string, { range, signal }: GetOptions = {}): AsyncGenerator<Uint8Array> {
    const what = `GET ${this.address(key)}`
    const { readableStreamBody, contentLength } = await this.#asked(what, signal, () =>
      this.#blob(key).download(range?.start, range?.length, { abortSignal: signal }),
    )
    if (readableStreamBody !== undefined)
      yield* received(readableStreamBody as AsyncIterable<Uint8Array>, contentLength, what, signal)
  }

  async *list(prefix: string): AsyncGenerator<StoredObject> {
    const { pageSize: maxPageSize = MOST_KEYS } = this.#options
    const pages = this.#container.listBlobsFlat({ prefix }).byPage({ maxPageSize })
    for (;;) {
      const next = await this.#asked(`LIST ${this.address(prefix)}`, undefined, () => pages.next())
      if (next.done === true) return
      for (const { name, properties } of next.value.segment.blobItems)
        yield { key: name, size: properties.contentLength ?? 0 }
    }
  }

  async head(key: string, signal?: AbortSignal): Promise<DescribedObject | undefined> {
    const found = await unlessMissing(
      this.#asked(`HEAD ${this.address(key)}`, signal, () => this.#blob(key).getProperties({ abortSignal: signal })),
    )
    return (
      found && {
        key,
        size: found.contentLength ?? 0,
        metadata: renamed(found.metadata ?? {}, (name) => name.replaceAll('_', '-')),
      }
    )
  }

  async delete(key: string): Promise<void> {
    await unlessMissing(this.#asked(`DELETE ${this.address(key)}`, undefined, () => this.#blob(key).delete()))
  }

  #blob(key: string): BlockBlobClient {
    return this.#container.getBlockBlobClient(key)
  }

  async #asked<T>(what: string, signal: AbortSignal | undefined, ask: () => Promise<T>): Promise<T> {
    try {
      return await ask()
    } catch (error) {
      signal?.throwIfAborted()
      throw this.#errorOf(error, what)
    }
  }

  /** Returns the error of a request, with a fix. */
  #errorOf(error: unknown, what: string): StoreError {
    const { name, statusCode, response } = error as Partial<RestError>
    // An answer to HEAD has no body, but a header with the code.
    const code = (error as RestError).code ?? response?.headers.get('x-ms-error-code')
    if (/Authentication|CredentialUnavailable/.test(name ?? ''))
      return new StoreError('refused', `${what}: no credentials: ${textOf(error)}: ${ADVICE_ON_IDENTITY}`)
    if (statusCode === undefined) return unanswered(what, error)
    const reason = REASONS[code ?? ''] ?? 'refused'
    const said = code === undefined ? statusOf(statusCode) : `${statusCode} ${code}`
    const advice = this.#adviceOn(code)
    return new StoreError(reason, `${what}: ${said}${advice === undefined ? '' : `: ${advice}`}`)
  }

  #adviceOn(code: string | undefined): string | undefined {
    const { container, credentials, endpoint } = this.#options
    const place = endpoint === undefined ? '' : `; the endpoint is ${endpoint}`
    switch (code ?? '') {
      case 'BlobNotFound':
        return 'there is no such blob'
      case 'ContainerNotFound':
        return `create the container ${container} in the account ${credentials?.account ?? ''}, or correct the first segment of the path${place}`
      case 'AuthenticationFailed':
      case 'AuthorizationFailure':
        return credentials === undefined
          ? `${ADVICE_ON_IDENTITY}${place}`
          : `correct storage-account (${credentials.account}) and storage-key in the Secret, and set the clock of the node${place}`
      case 'AuthorizationPermissionMismatch':
        return `give the identity the role Storage Blob Data Contributor on the container ${container}${place}`
      case 'LeaseIdMissing':
      case 'BlobImmutableDueToPolicy':
        return 'the blob is protected: end its lease or its policy'
      case 'PARSE_ERROR':
        return `the answer is not one of Azure Blob Storage: is it Azure Blob Storage that answers?${place}`
      default:
        return undefined
    }
  }
}

const ADVICE_ON_IDENTITY =
  'name a Secret, or bind the ServiceAccount of the pod to an identity of Azure, by the annotation azure.workload.identity/client-id and a federated credential'

/** Renames metadata, because their names are C# identifiers and allow no dashes. */
const renamed = (metadata: Metadata, rename: (name: string) => string): Record<string, string> =>
  Object.fromEntries(Object.entries(metadata).map(([name, value]) => [rename(name), value]))

const SUFFIXES: Record<string, string> = {
  AzurePublicCloud: 'core.windows.net',
  AzureChinaCloud: 'core.chinacloudapi.cn',
  AzureUSGovernmentCloud: 'core.usgovcloudapi.net',
  AzureGermanCloud: 'core.cloudapi.de',
}

/** Returns the URL of the blob service of the account. */
export function urlOf({ endpoint, credentials, cloud = 'AzurePublicCloud' }: AbsOptions): string {
  if (endpoint !== undefined) return endpoint
  const suffix = SUFFIXES[cloud]
  if (suffix !== undefined) return `https://${credentials?.account ?? ''}.blob.${suffix}`
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
