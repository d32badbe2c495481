import { existsSync } from 'node:fs'
import { UsageError } from '#host/exit'
import type { Blob, Descriptor } from './blob.ts'
import { openLayout } from './layout.ts'
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
