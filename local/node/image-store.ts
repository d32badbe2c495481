import { createHash, randomUUID } from 'node:crypto'
import { createReadStream, createWriteStream } from 'node:fs'
import { mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

const DIGEST = /^sha256:[0-9a-f]{64}$/

/** Stores parts of images in a folder, by digest, and the tags of repositories. */
export class ImageStore {
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
