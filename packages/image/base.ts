import { createReadStream, existsSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { unpackTar } from 'modern-tar'
import { UsageError } from '#process/exit'
import { type Blob, blob, type Descriptor, DigestMismatchError, digestOf, type Index, RegistryError } from './blob.ts'
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

const CURE =
  'give --base an OCI layout on this machine, or an image by digest of a registry that you reach (docs/deploy/images.md)'
/** How long a registry is silent before the author reads what to do. It may still answer: nothing is given up. */
const SILENT_MS = 2_500

/**
 * Opens a reference by digest, or the path of an OCI layout. `warn` gets what to do while a registry does not answer, and
 * the error has it if the registry cannot be reached.
 */
export async function openBase(
  text: string,
  { warn = () => {}, ...options }: RepositoryOptions & { warn?: (line: string) => void },
): Promise<Base> {
  if (existsSync(text)) {
    const layout = await openLayout(text)
    const read = (part: Descriptor) => layout.read(part)
    return { root: layout.root, read, manifest: read }
  }
  const reference = parseReference(text)
  const repository = new Repository(reference, options)
  const { digest, ...named } = reference
  const silence = setTimeout(() => {
    warn(`${reference.registry}, which has the base image, does not answer yet. Without access to it, ${CURE}`)
  }, SILENT_MS)
  const root = await repository
    .manifest(digest ?? named.tag ?? 'latest')
    .catch((cause: unknown) => {
      if (!(cause instanceof RegistryError)) throw cause
      throw new RegistryError(`the base image cannot be read: ${cause.message}; ${CURE}`, {
        status: cause.status,
        cause,
      })
    })
    .finally(() => clearTimeout(silence))
  if (digest === undefined) throw tagOnly(named, root.digest)
  return {
    name: nameOf(named),
    reference,
    root,
    read: (part) => repository.read(part),
    manifest: async (part) => (await repository.manifest(part.digest)).bytes,
  }
}

/**
 * Returns the error for a reference without a digest: a tag can be moved, and the same command would make another
 * image.
 */
function tagOnly({ tag = 'latest', ...named }: Reference, digest: string): UsageError {
  const now = nameOf({ ...named, tag, digest })
  return new UsageError(
    `the base ${nameOf({ ...named, tag })} has no digest, and its tag can be moved: give ${now}, which it is now`,
  )
}

/** An OCI image layout on this machine: a folder or an archive. */
export interface Layout {
  /** The single image of the layout: an index or a manifest. */
  root: Blob
  read(part: Descriptor): Promise<Buffer<ArrayBuffer>>
}

export async function openLayout(path: string): Promise<Layout> {
  const contents = (await stat(path)).isDirectory() ? folder(path) : archive(path)
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

/** Reads the archive from its beginning for each file, so that no more than one file is in memory. */
const archive =
  (path: string): Contents =>
  async (name) => {
    const bytes = Readable.toWeb(createReadStream(path, { highWaterMark: 2 ** 22 }))
    const isWanted = (header: { name: string }) => header.name.replace(/^\.\//, '') === name
    const found = await unpackTar(bytes, { strict: true, filter: isWanted }).catch((cause: unknown) => {
      throw missing(path, 'valid tar header', cause)
    })
    const [{ data } = {}] = found
    if (data === undefined) throw missing(path, name)
    return Buffer.from(data.buffer)
  }
