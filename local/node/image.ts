import { createHash } from 'node:crypto'
import { readdir, readFile, readlink, stat } from 'node:fs/promises'
import { posix } from 'node:path'
import { type TarEntry, tar } from './tar.ts'

/** What an image holds: path in the image → a file or folder of this machine, a text, or a symbolic link. */
export type ImageFiles = Record<string, { from: string } | { content: string; mode?: number } | { link: string }>

/** The part of an OCI image configuration that says how to run it. */
export interface ImageConfig {
  Entrypoint?: string[]
  Cmd?: string[]
  Env?: string[]
  /** Give a number where the pod demands `runAsNonRoot`. */
  User?: string
  WorkingDir?: string
  Labels?: Record<string, string>
  ExposedPorts?: Record<string, object>
}

export interface ImageSource {
  files: ImageFiles
  config: ImageConfig
}

export interface Blob {
  mediaType: string
  digest: string
  size: number
  bytes: Buffer<ArrayBuffer>
}

/** An OCI image of one uncompressed layer. `manifest.digest` is the image's. */
export interface Image {
  layer: Blob
  config: Blob
  manifest: Blob
}

const PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** What programs expect to find in any root file system. */
const BASE_DIRECTORIES = ['bin', 'dev', 'etc', 'home', 'proc', 'root', 'sys', 'tmp', 'usr/bin', 'usr/local/bin', 'var']
const BASE_FILES: ImageFiles = {
  'etc/passwd': {
    content:
      'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nnonroot:x:65532:65532::/home:/bin/false\n',
  },
  'etc/group': { content: 'root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n' },
}

/** The same files and configuration give the same digest, at any time and on any machine of one architecture. */
export async function buildImage({ files, config }: ImageSource): Promise<Image> {
  const entries = await layerEntries({ ...BASE_FILES, ...files })
  return imageOf(tar(entries), config)
}

export function imageOf(layerTar: Buffer<ArrayBuffer>, config: ImageConfig): Image {
  const layer = blob('application/vnd.oci.image.layer.v1.tar', layerTar)
  const configBlob = jsonBlob('application/vnd.oci.image.config.v1+json', {
    architecture: process.arch === 'x64' ? 'amd64' : process.arch,
    os: 'linux',
    config: { ...config, Env: [PATH, ...(config.Env ?? [])] },
    rootfs: { type: 'layers', diff_ids: [layer.digest] },
  })
  const manifest = jsonBlob('application/vnd.oci.image.manifest.v1+json', {
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.manifest.v1+json',
    config: descriptor(configBlob),
    layers: [descriptor(layer)],
  })
  return { layer, config: configBlob, manifest }
}

async function layerEntries(files: ImageFiles): Promise<TarEntry[]> {
  const content = await Promise.all(Object.entries(files).map(([path, source]) => entriesOf(imagePath(path), source)))
  const entries = content.flat().sort((a, b) => (a.path < b.path ? -1 : 1))
  const named = new Set(entries.map((entry) => entry.path))
  return [...directoriesFor(entries).filter((directory) => !named.has(directory.path)), ...entries]
}

async function entriesOf(path: string, source: ImageFiles[string]): Promise<TarEntry[]> {
  if ('link' in source) return [{ type: 'link', path, target: source.link }]
  if ('content' in source) {
    return [{ type: 'file', path, mode: source.mode ?? 0o644, content: Buffer.from(source.content) }]
  }
  return copyOf(path, source.from)
}

async function copyOf(path: string, from: string): Promise<TarEntry[]> {
  const status = await stat(from)
  if (!status.isDirectory()) {
    return [{ type: 'file', path, mode: status.mode & 0o7777, content: await readFile(from) }]
  }
  const children = await readdir(from, { withFileTypes: true })
  const copies = children.map(async (child): Promise<TarEntry[]> => {
    const [source, target] = [posix.join(from, child.name), posix.join(path, child.name)]
    return child.isSymbolicLink()
      ? [{ type: 'link', path: target, target: await readlink(source) }]
      : copyOf(target, source)
  })
  return [{ type: 'directory', path, mode: status.mode & 0o7777 }, ...(await Promise.all(copies)).flat()]
}

/** Every folder that an entry lies in, and those of BASE_DIRECTORIES, parents first. */
function directoriesFor(entries: TarEntry[]): TarEntry[] {
  const parents = [...BASE_DIRECTORIES.map((path) => posix.join(path, 'x')), ...entries.map((entry) => entry.path)]
  const paths = new Set(parents.flatMap(ancestors))
  return [...paths].sort().map((path) => ({ type: 'directory', path, mode: path === 'tmp' ? 0o1777 : 0o755 }))
}

function ancestors(path: string): string[] {
  const parent = posix.dirname(path)
  return parent === '.' ? [] : [...ancestors(parent), parent]
}

function imagePath(path: string): string {
  const normal = posix.join('/', path).slice(1).replace(/\/$/, '')
  if (normal === '') throw new Error(`"${path}" is no path of a file in an image`)
  return normal
}

function jsonBlob(mediaType: string, value: object): Blob {
  return blob(mediaType, Buffer.from(JSON.stringify(value)))
}

function blob(mediaType: string, bytes: Buffer<ArrayBuffer>): Blob {
  const digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`
  return { mediaType, digest, size: bytes.length, bytes }
}

function descriptor({ mediaType, digest, size }: Blob): Omit<Blob, 'bytes'> {
  return { mediaType, digest, size }
}
