import { createHash, randomUUID } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

const PATH = /^\/v2\/(?<repository>.+)\/(?<kind>blobs|manifests)\/(?<reference>[^/]+(?:\/[^/]*)?)$/
const UPLOADS = 'uploads/'

interface Call {
  request: IncomingMessage
  response: ServerResponse
  repository: string
  /** A digest, a tag, or `uploads/ID`. */
  reference: string
  query: URLSearchParams
}

/**
 * Serves the part of the OCI distribution protocol that containerd needs for pulls and addImage() for pushes. There is
 * no authentication: it listens on the node's address, and every client that reaches it may pull and push.
 */
export async function registryServer(dir: string): Promise<Server> {
  const store = new ImageStore(dir)
  await store.create()
  return createServer((request, response) => {
    answer(store, request, response).catch((error: unknown) => {
      if (response.headersSent) response.destroy()
      else refuse(response, 500, 'UNKNOWN', error instanceof Error ? error.message : String(error))
    })
  })
}

async function answer(store: ImageStore, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { pathname, searchParams } = new URL(request.url ?? '', 'http://registry')
  if (pathname === '/v2/') return void response.writeHead(200).end()
  const { repository = '', kind, reference = '' } = PATH.exec(decodeURIComponent(pathname))?.groups ?? {}
  const call = { request, response, repository, reference, query: searchParams }
  if (kind === 'blobs' && reference.startsWith(UPLOADS)) return upload(store, call)
  if (kind === 'manifests' && request.method === 'PUT') return storeManifest(store, call)
  if (kind !== undefined && (request.method === 'GET' || request.method === 'HEAD')) return sendPart(store, call, kind)
  refuse(response, 404, 'UNSUPPORTED', `${request.method} ${pathname}`)
}

/** An upload begins with a POST; a single PUT sends all data. */
async function upload(store: ImageStore, { request, response, repository, query }: Call): Promise<void> {
  if (request.method === 'POST') {
    const location = `/v2/${repository}/blobs/${UPLOADS}${randomUUID()}`
    return void response.writeHead(202, { location }).end()
  }
  const expected = query.get('digest') ?? ''
  const digest = await store.store(request, expected)
  if (request.method !== 'PUT' || digest !== expected)
    return refuse(response, 400, 'DIGEST_INVALID', `${digest} came in place of ${expected || 'a digest'}`)
  response.writeHead(201, { 'docker-content-digest': digest }).end()
}

async function storeManifest(store: ImageStore, { request, response, repository, reference }: Call): Promise<void> {
  const digest = await store.store(request)
  await store.tag(repository, reference, digest)
  response.writeHead(201, { 'docker-content-digest': digest }).end()
}

async function sendPart(store: ImageStore, call: Call, kind: string): Promise<void> {
  const { request, response, repository, reference } = call
  const digest = kind === 'manifests' ? await store.digestOf(repository, reference) : reference
  const size = digest === undefined ? undefined : await store.sizeOf(digest)
  if (digest === undefined || size === undefined)
    return refuse(response, 404, kind === 'manifests' ? 'MANIFEST_UNKNOWN' : 'BLOB_UNKNOWN', reference)
  const type = kind === 'manifests' ? await mediaTypeOf(store, digest) : 'application/octet-stream'
  response.writeHead(200, { 'content-type': type, 'content-length': size, 'docker-content-digest': digest })
  if (request.method === 'HEAD') return void response.end()
  await store.send(digest, response)
}

async function mediaTypeOf(store: ImageStore, digest: string): Promise<string> {
  return (
    ((await store.json(digest)) as { mediaType?: string }).mediaType ?? 'application/vnd.oci.image.manifest.v1+json'
  )
}

function refuse(response: ServerResponse, status: number, code: string, message: string): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify({ errors: [{ code, message }] }))
}

const DIGEST = /^sha256:[0-9a-f]{64}$/

/** Stores parts of images in a folder, by digest, and the tags of repositories. */
class ImageStore {
  readonly #parts: string
  readonly #tags: string

  constructor(dir: string) {
    this.#parts = join(dir, 'parts')
    this.#tags = join(dir, 'tags')
  }

  async create(): Promise<void> {
    await Promise.all([this.#parts, this.#tags].map((dir) => mkdir(dir, { recursive: true })))
  }

  /** Returns the size in bytes; undefined if the part does not exist. */
  async sizeOf(digest: string): Promise<number | undefined> {
    if (!DIGEST.test(digest)) return undefined
    return stat(this.#fileOf(digest)).then(
      ({ size }) => size,
      () => undefined,
    )
  }

  send(digest: string, to: Writable): Promise<void> {
    return pipeline(createReadStream(this.#fileOf(digest)), to)
  }

  /** Returns the contents of a manifest. */
  async json(digest: string): Promise<unknown> {
    return JSON.parse(await readFile(this.#fileOf(digest), 'utf8')) as unknown
  }

  /** Stores the data and returns its digest. Rejects if another digest was expected. */
  async store(from: Readable, expected?: string): Promise<string> {
    const temporary = join(this.#parts, `incoming-${randomUUID()}`)
    const hash = createHash('sha256')
    try {
      await pipeline(
        from,
        async function* (chunks: AsyncIterable<Buffer>) {
          for await (const chunk of chunks) {
            hash.update(chunk)
            yield chunk
          }
        },
        createWriteStream(temporary),
      )
      const digest = `sha256:${hash.digest('hex')}`
      if (expected === undefined || expected === digest) await rename(temporary, this.#fileOf(digest))
      return digest
    } finally {
      await rm(temporary, { force: true })
    }
  }

  async tag(repository: string, tag: string, digest: string): Promise<void> {
    await writeFile(this.#tagFile(repository, tag), digest)
  }

  /** Returns the digest of a manifest. `reference` is a digest or a tag. */
  async digestOf(repository: string, reference: string): Promise<string | undefined> {
    if (DIGEST.test(reference)) return reference
    return readFile(this.#tagFile(repository, reference), 'utf8').catch(() => undefined)
  }

  #fileOf(digest: string): string {
    return join(this.#parts, digest.slice('sha256:'.length))
  }

  /** Encodes repository and tag as one file name. */
  #tagFile(repository: string, tag: string): string {
    return join(this.#tags, encodeURIComponent(`${repository}:${tag}`))
  }
}
