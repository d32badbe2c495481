import { posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  ancestors,
  type Blob,
  blob,
  descriptorOf,
  entriesFrom,
  type ImageConfig,
  jsonBlob,
  MEDIA,
  parseReference,
  Repository,
  type TarEntry,
  tar,
} from '#image'
import { run } from './command.ts'
import { NODE_IP, type NodeOptions, type NodePaths } from './options.ts'
import { readNodeFacts } from './requirements.ts'
import { PAUSE_IMAGE } from './services.ts'

const MAIN = fileURLToPath(new URL('./registry-main.ts', import.meta.url))

/** Starts the registry from which the node's containerd pulls for all registries. It is empty at first. */
export async function startRegistry({ processes }: NodeOptions, paths: NodePaths, port: number): Promise<void> {
  await processes.start({
    name: 'registry',
    command: process.execPath,
    args: [MAIN, NODE_IP, String(port), `${paths.state}/registry`],
    stopSignal: 'SIGKILL',
  })
}

/** Adds `busybox`, made from the system's program, and the image that holds a pod's namespaces. */
export async function addBaseImages(registryUrl: string): Promise<void> {
  const busybox = (await readNodeFacts()).commands.busybox
  if (busybox === undefined) throw new Error('busybox is gone from this machine: install busybox-static')
  await Promise.all([
    addImage(registryUrl, PAUSE_IMAGE, {
      files: { 'bin/sleep': { from: busybox } },
      config: { Entrypoint: ['/bin/sleep', '1000000000'] },
    }),
    addImage(registryUrl, 'busybox', { files: await busyboxFiles(busybox), config: { Cmd: ['sh'] } }),
  ])
}

async function busyboxFiles(busybox: string): Promise<ImageFiles> {
  const applets = (await run(busybox, ['--list'])).split('\n').filter((name) => name !== '' && name !== 'busybox')
  const links = applets.map((name) => [`bin/${name}`, { link: 'busybox' }] as const)
  return { 'bin/busybox': { from: busybox }, ...Object.fromEntries(links) }
}

/**
 * Makes an image and stores it in a registry under its name in manifests: `busybox`, `gcr.io/x/y:v1` … The local node
 * pulls from its own registry for all registries, so any name works there. Returns the image's digest.
 */
export async function addImage(registryUrl: string, name: string, source: ImageSource): Promise<string> {
  const { repository, tag = 'latest' } = parseReference(name)
  const image = await buildImage(source)
  // A mirror has no host in the names of its repositories.
  const mirrored = { registry: new URL(registryUrl).host, repository }
  const target = new Repository(mirrored, { actions: 'pull,push', plainHttp: true })
  for (const part of [image.layer, image.config]) if (!(await target.has(part.digest))) await target.push(part)
  await target.pushManifest(image.manifest, tag)
  return image.manifest.digest
}

/**
 * The contents of an image: the path in the image, and a file or folder of this machine, a text, or a symbolic link.
 */
export type ImageFiles = Record<string, { from: string } | { content: string; mode?: number } | { link: string }>

export interface ImageSource {
  files: ImageFiles
  config: ImageConfig
}

/** An OCI image of one uncompressed layer. The digest of the image is `manifest.digest`. */
export interface Image {
  layer: Blob
  config: Blob
  manifest: Blob
}

const PATH = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

/** The directories that programs expect in any root file system. */
const BASE_DIRECTORIES = ['bin', 'dev', 'etc', 'home', 'proc', 'root', 'sys', 'tmp', 'usr/bin', 'usr/local/bin', 'var']
const BASE_FILES: ImageFiles = {
  'etc/passwd': {
    content:
      'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nnonroot:x:65532:65532::/home:/bin/false\n',
  },
  'etc/group': { content: 'root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n' },
}

/** Builds an image. The same files and configuration give the same digest on all machines of one architecture. */
export async function buildImage({ files, config }: ImageSource): Promise<Image> {
  const entries = await layerEntries({ ...BASE_FILES, ...files })
  return imageOf(await tar(entries), config)
}

export function imageOf(layerTar: Buffer<ArrayBuffer>, config: ImageConfig): Image {
  const layer = blob(MEDIA.layer, layerTar)
  const configBlob = jsonBlob(MEDIA.config, {
    architecture: process.arch === 'x64' ? 'amd64' : process.arch,
    os: 'linux',
    config: { ...config, Env: [PATH, ...(config.Env ?? [])] },
    rootfs: { type: 'layers', diff_ids: [layer.digest] },
  })
  const manifest = jsonBlob(MEDIA.manifest, {
    schemaVersion: 2,
    mediaType: MEDIA.manifest,
    config: descriptorOf(configBlob),
    layers: [descriptorOf(layer)],
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
  return entriesFrom(source.from, path)
}

/** Returns the parent folders of all entries, and those of BASE_DIRECTORIES, parents first. */
function directoriesFor(entries: TarEntry[]): TarEntry[] {
  const parents = [...BASE_DIRECTORIES.map((path) => posix.join(path, 'x')), ...entries.map((entry) => entry.path)]
  const paths = new Set(parents.flatMap(ancestors))
  return [...paths].sort().map((path) => ({ type: 'directory', path, mode: path === 'tmp' ? 0o1777 : 0o755 }))
}

function imagePath(path: string): string {
  const normal = posix.join('/', path).slice(1).replace(/\/$/, '')
  if (normal === '') throw new Error(`"${path}" is not a path of a file in an image`)
  return normal
}
