import { posix } from 'node:path'
import { UsageError } from '#process/exit'
import { version } from '#process/version'
import { type Base, openBase } from './base.ts'
import { type Blob, digestOf, jsonBlob, MEDIA } from './blob.ts'
import { type ComposedImage, compose } from './compose.ts'
import { sbomOf } from './dependencies.ts'
import { type Layer, layerOf } from './files.ts'
import { type Packed, packed } from './packed.ts'
import { type Project, readProject } from './project.ts'
import { nameOf, parseReference, type Reference } from './reference.ts'
import { Repository } from './registry.ts'
import { attach, pushImage, writeArchive } from './store.ts'

export interface ImageOptions {
  /** A reference by digest, or the path of an OCI layout. */
  base: string
  /** Paths of the project that are added to the image with package.json. */
  include: readonly string[]
  /** `linux/amd64` */
  platforms: readonly string[]
  /** Other files: `FILE:PATH`. `{arch}` in FILE is replaced by the architecture. */
  add?: readonly string[]
  /** The default arguments of fairlead. */
  start?: readonly string[]
  /** The destination in a registry: `registry/name:tag`. */
  push?: string
  /** The path of the OCI archive to write. */
  output?: string
  plainHttp?: boolean
  /** Gets a line that a person should read while the command works. */
  warn?: (line: string) => void
  env?: NodeJS.ProcessEnv
}

export interface MadeImage {
  /** The digest of the index, `sha256:…`. */
  digest: string
  /** The reference by digest; left out if the image was not pushed. */
  reference?: string
  /** The added layers; `size` is their compressed size in bytes. */
  layers: { createdBy: string; files: number; digest: string; size: number }[]
  /** The paths of files and folders that are not in the image because their names are those of credentials. */
  credentials: string[]
}

/** Returns what the layers of an image would have, without its base, and makes nothing. */
export async function listImage(
  folder: string,
  { include, add = [], platforms }: Pick<ImageOptions, 'include' | 'add' | 'platforms'>,
): Promise<Packed> {
  const { installed, own } = await readProject(folder, include)
  const others = await Promise.all(platforms.map((one) => added(add, one.replace('linux/', ''))))
  const all = [installed, own, ...others]
  const byPath = new Map(all.flatMap(({ entries }) => entries.map((entry) => [entry.path, entry] as const)))
  const entries = [...byPath.values()].sort((a, b) => (a.path < b.path ? -1 : 1))
  return { entries, credentials: [...new Set(all.flatMap(({ credentials }) => credentials))] }
}

/**
 * Makes an image of the functions of a project, and stores it. The same files and the same base give the same bytes.
 */
export async function makeImage(folder: string, options: ImageOptions): Promise<MadeImage> {
  const { add = [], start = [], platforms, push, output, plainHttp = false, warn, env = process.env } = options
  const target = push === undefined ? undefined : parseReference(push)
  if (target?.digest !== undefined)
    throw new UsageError(`"${push}" names a digest, which only the image can give: name a tag`)
  const project = await readProject(folder, options.include)
  if (project.native.length > 0 && platforms.length > 1)
    throw new UsageError(
      `${project.native[0]} is machine code of this platform: make an image for one platform, on it, --platform linux/amd64`,
    )
  const created = createdAt(env)
  const base = await openBase(options.base, { plainHttp, warn, env })
  const { command, installed, own } = project
  // Dependencies, then functions: the first layer changes rarely.
  const layers = [
    { ...(await layerOf(installed.entries, 'fairlead image: dependencies')), files: filesOf(installed) },
    { ...(await layerOf(own.entries, 'fairlead image: functions')), files: filesOf(own) },
  ]
  const credentials = new Set([...installed.credentials, ...own.credentials])
  const image = await compose(base, {
    platforms,
    layers: async (architecture) => {
      const others = await added(add, architecture)
      for (const one of others.credentials) credentials.add(one)
      return [
        ...(others.entries.length === 0 ? [] : [await layerOf(others.entries, 'fairlead image: added files')]),
        ...layers,
      ]
    },
    command,
    start,
    labels: labelsOf(project, created),
    created,
  })
  const sbom = documentOf(project, layers, base, created)
  if (output !== undefined)
    await writeArchive(output, image, base, { document: sbom, reference: target && nameOf(target) })
  if (target !== undefined) await stored(image, { base, sbom, target, created, plainHttp, env })
  return {
    digest: image.index.digest,
    ...(target && { reference: nameOf({ ...withoutTag(target), digest: image.index.digest }) }),
    layers: layers.map(({ createdBy, files, blob: { digest, size } }) => ({ createdBy, files, digest, size })),
    credentials: [...credentials],
  }
}

interface Storing {
  base: Base
  sbom: Blob
  target: Reference
  created: string
  plainHttp: boolean
  env: NodeJS.ProcessEnv
}

async function stored(image: ComposedImage, { base, sbom, target, created, plainHttp, env }: Storing): Promise<void> {
  const isNear = base.reference?.registry === target.registry && base.reference.repository !== target.repository
  const mountsFrom = isNear ? base.reference?.repository : undefined
  const repository = new Repository(target, { actions: 'pull,push', mountsFrom, plainHttp, env })
  await pushImage(image, base, repository)
  await attach(sbom, image.index, created, repository)
}

/** Returns the time of SOURCE_DATE_EPOCH, or 1970: the current time would change the image's digest. */
function createdAt({ SOURCE_DATE_EPOCH: seconds = '0' }: NodeJS.ProcessEnv): string {
  if (!/^\d{1,11}$/.test(seconds))
    throw new UsageError(`SOURCE_DATE_EPOCH is "${seconds}": give whole seconds since 1970, or leave it out`)
  return new Date(Number(seconds) * 1000).toISOString().replace('.000Z', 'Z')
}

function labelsOf({ name, version, license, description, source }: Project, created: string): Record<string, string> {
  const values = { title: name, version, created, licenses: license, description, source }
  const given = Object.entries(values).filter(([, value]) => value !== undefined)
  return Object.fromEntries(given.map(([key, value]) => [`org.opencontainers.image.${key}`, value ?? '']))
}

const filesOf = ({ entries }: Packed): number => entries.filter(({ type }) => type !== 'directory').length

/** Returns the added files, whose layer is below those of the project. */
async function added(add: readonly string[], architecture: string): Promise<Packed> {
  const all: Packed = { entries: [], credentials: [] }
  for (const one of add) {
    const [, file = '', path = ''] = /^(.+):(\/.+)$/.exec(one) ?? []
    if (file === '')
      throw new UsageError(`"${one}" names no file and its place: write it like ./helm-{arch}:/usr/local/bin/helm`)
    const source = file.replaceAll('{arch}', architecture)
    const at = posix.normalize(path).slice(1)
    const found = await packed(source, at, { asPackage: false }).catch((cause: unknown) => {
      throw new UsageError(`${source}, which --add names, cannot be read: ${(cause as Error).message}`, { cause })
    })
    all.entries.push(...found.entries)
    all.credentials.push(...found.credentials)
  }
  return all
}

function documentOf(project: Project, layers: readonly Layer[], base: Base, created: string): Blob {
  const digest = digestOf(Buffer.from(layers.map(({ diffId }) => diffId).join()))
  const sbom = sbomOf({
    ...project,
    packages: project.dependencies.packages,
    base: { name: base.name ?? 'base', digest: base.root.digest },
    digest,
    created,
    tool: `fairlead-${version}`,
  })
  return jsonBlob(MEDIA.spdx, sbom)
}

const withoutTag = ({ registry, repository }: Reference): Reference => ({ registry, repository })
