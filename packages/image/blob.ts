import { createHash } from 'node:crypto'

export const MEDIA = {
  index: 'application/vnd.oci.image.index.v1+json',
  manifest: 'application/vnd.oci.image.manifest.v1+json',
  config: 'application/vnd.oci.image.config.v1+json',
  layer: 'application/vnd.oci.image.layer.v1.tar',
  gzipLayer: 'application/vnd.oci.image.layer.v1.tar+gzip',
  empty: 'application/vnd.oci.empty.v1+json',
  spdx: 'application/spdx+json',
} as const

/** Docker's media types of the same contents, which registries still serve. */
const DOCKER: Record<string, string> = {
  'application/vnd.docker.distribution.manifest.list.v2+json': MEDIA.index,
  'application/vnd.docker.distribution.manifest.v2+json': MEDIA.manifest,
  'application/vnd.docker.container.image.v1+json': MEDIA.config,
  'application/vnd.docker.image.rootfs.diff.tar.gzip': MEDIA.gzipLayer,
  'application/vnd.docker.image.rootfs.diff.tar': MEDIA.layer,
}

/** All media types of an index or a manifest, for `Accept`. */
export const MANIFESTS: readonly string[] = [
  MEDIA.index,
  MEDIA.manifest,
  ...Object.keys(DOCKER).filter((type) => type.includes('.distribution.')),
]

export const ociType = (mediaType: string): string => DOCKER[mediaType] ?? mediaType

export interface Platform {
  os: string
  architecture: string
  variant?: string
}

/** The descriptor of a part of an image. `digest` is `sha256:…`, `size` in bytes. */
export interface Descriptor {
  mediaType: string
  digest: string
  size: number
  platform?: Platform
  annotations?: Record<string, string>
}

export interface Blob extends Descriptor {
  bytes: Buffer<ArrayBuffer>
}

/** OCI image index. */
export interface Index {
  manifests: Descriptor[]
}

/** OCI image manifest. */
export interface Manifest {
  config: Descriptor
  layers: Descriptor[]
}

export const digestOf = (bytes: Uint8Array): string => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

export const blob = (mediaType: string, bytes: Buffer<ArrayBuffer>): Blob => ({
  mediaType,
  digest: digestOf(bytes),
  size: bytes.length,
  bytes,
})

export const jsonBlob = (mediaType: string, value: object): Blob => blob(mediaType, Buffer.from(JSON.stringify(value)))

export const descriptorOf = ({ mediaType, digest, size }: Descriptor): Descriptor => ({ mediaType, digest, size })

/** A registry cannot be reached, or rejects a request. */
export class RegistryError extends Error {
  override readonly name = 'RegistryError'
  /** HTTP status of the answer, if there was one. */
  readonly status: number | undefined

  constructor(message: string, { status, ...options }: ErrorOptions & { status?: number } = {}) {
    super(message, options)
    this.status = status
  }
}

/** Contents of a registry or a file do not match their digest. */
export class DigestMismatchError extends Error {
  override readonly name = 'DigestMismatchError'
}
