import { existsSync } from 'node:fs'
import { type FileHandle, open, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { UsageError } from '#process/exit'
import { type Blob, blob, type Descriptor, DigestMismatchError, digestOf, type Index } from './blob.ts'
import { nameOf, parseReference, type Reference } from './reference.ts'
import { Repository, type RepositoryOptions } from './registry.ts'

/** Node.js 24 on Debian 13, without a shell and a package manager, with a non-root user. */
export const DEFAULT_BASE =
  'gcr.io/distroless/nodejs24-debian13:nonroot@sha256:9eeb7f5887d0e239e78264b06f7f11d2e14be534050481803a9e4728fcdd278e'

/** The image below the added layers. */
export interface Base {
  /** The value of `org.opencontainers.image.base.name`; undefined for a file. */
  name?: string
  /** The reference in its registry; left out for a file. */
  reference?: Reference
  /** The index or the manifest. */
  root: Blob
  read(part: Descriptor): Promise<Buffer<ArrayBuffer>>
  /** Reads a manifest that the index names. */
  manifest(part: Descriptor): Promise<Buffer<ArrayBuffer>>
}

/** Opens a reference by digest, or the path of an OCI layout. */
export async function openBase(text: string, options: RepositoryOptions): Promise<Base> {
  if (existsSync(text)) {
    const layout = await openLayout(text)
    const read = (part: Descriptor) => layout.read(part)
    return { root: layout.root, read, manifest: read }
  }
  const reference = parseReference(text)
  const repository = new Repository(reference, options)
  const { digest, ...named } = reference
  if (digest === undefined) throw await tagOnly(named, repository)
  return {
    name: nameOf(named),
    reference,
    root: await repository.manifest(digest),
    read: (part) => repository.read(part),
    manifest: async (part) => (await repository.manifest(part.digest)).bytes,
  }
}

/**
 * Returns the error for a reference without a digest: a tag can be moved, and the same command would make another
 * image.
 */
async function tagOnly(named: Reference, repository: Repository): Promise<UsageError> {
  const tag = named.tag ?? 'latest'
  const { digest } = await repository.manifest(tag)
  return new UsageError(
    `the base ${nameOf(named)} has no digest, and its tag can be moved: give ${nameOf({ ...named, tag, digest })}, which it is now`,
  )
}

const BLOCK = 512

/** An OCI image layout on this machine: a folder or an archive. */
export interface Layout {
  /** The single image of the layout: an index or a manifest. */
  root: Blob
  read(part: Descriptor): Promise<Buffer<ArrayBuffer>>
}

export async function openLayout(path: string): Promise<Layout> {
  const contents = (await stat(path)).isDirectory() ? folder(path) : await archive(path)
  const index = JSON.parse((await contents('index.json')).toString()) as Index
  const [only, ...others] = index.manifests
  if (only === undefined || others.length > 0)
    throw new UsageError(`${path} has ${index.manifests.length} images: give a layout with one`)
  const read = async ({ digest }: Descriptor) => {
    const bytes = await contents(`blobs/${digest.replace(':', '/')}`)
    if (digestOf(bytes) !== digest)
      throw new DigestMismatchError(`${digest} in ${path} has contents that do not match its digest`)
    return bytes
  }
  return { root: blob(only.mediaType, await read(only)), read }
}

type Contents = (name: string) => Promise<Buffer<ArrayBuffer>>

const missing = (path: string, name: string, cause?: unknown): UsageError =>
  new UsageError(`${path} is not an OCI image layout: it has no ${name}`, { cause })

const folder =
  (path: string): Contents =>
  async (name) =>
    readFile(join(path, name)).catch((cause: unknown) => {
      throw missing(path, name, cause)
    })

/** Reads the positions of all files of the archive once, and their bytes on demand. */
async function archive(path: string): Promise<Contents> {
  const files = new Map<string, { offset: number; size: number }>()
  await using handle = await open(path)
  const { size: end } = await handle.stat()
  for (let at = 0; at + BLOCK <= end; ) {
    const header = await bytesAt(handle, at, BLOCK)
    const name = text(header, 0, 100)
    if (name === '') break
    const size = Number.parseInt(text(header, 124, 12), 8)
    if (text(header, 257, 5) !== 'ustar' || !Number.isSafeInteger(size)) throw missing(path, 'tar header')
    const prefix = text(header, 345, 155)
    files.set((prefix === '' ? name : `${prefix}/${name}`).replace(/^\.\//, ''), { offset: at + BLOCK, size })
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK
  }
  return async (name) => {
    const found = files.get(name)
    if (found === undefined) throw missing(path, name)
    await using file = await open(path)
    return bytesAt(file, found.offset, found.size)
  }
}

async function bytesAt(handle: FileHandle, offset: number, size: number): Promise<Buffer<ArrayBuffer>> {
  const bytes = Buffer.alloc(size)
  const { bytesRead } = await handle.read(bytes, 0, size, offset)
  return bytes.subarray(0, bytesRead)
}

const text = (header: Buffer, from: number, length: number): string => {
  const field = header.subarray(from, from + length)
  const end = field.indexOf(0)
  return field.subarray(0, end === -1 ? length : end).toString()
}
