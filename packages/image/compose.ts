import { basename } from 'node:path'
import { UsageError } from '#process/exit'
import type { Base } from './base.ts'
import {
  type Blob,
  type Descriptor,
  descriptorOf,
  type Index,
  jsonBlob,
  type Manifest,
  MEDIA,
  ociType,
  type Platform,
} from './blob.ts'
import type { Layer } from './files.ts'

/** The part of an OCI image configuration that specifies how to run the image. */
export interface ImageConfig {
  Entrypoint?: string[]
  Cmd?: string[]
  Env?: string[]
  /** The user. A pod with `runAsNonRoot` requires a number. */
  User?: string
  WorkingDir?: string
  Labels?: Record<string, string>
  ExposedPorts?: Record<string, object>
}

interface ConfigFile extends Platform {
  created?: string
  config?: ImageConfig
  rootfs: { type: 'layers'; diff_ids: string[] }
  history?: object[]
  [field: string]: unknown
}

export interface Composition {
  /** `linux/amd64` */
  platforms: readonly string[]
  /** Returns the layers of one platform, including those that all platforms share. */
  layers: (architecture: string) => Promise<readonly Layer[]>
  command: string
  /** The default arguments of the command. */
  start: readonly string[]
  labels: Record<string, string>
  created: string
}

/** An image for several platforms. `inherited` names the parts of the base, which are read when the image is stored. */
export interface ComposedImage {
  index: Blob
  manifests: Blob[]
  /** The configurations and the added layers. */
  parts: Blob[]
  inherited: Descriptor[]
}

const USER = '65532:65532'
const BASE_NAME = 'org.opencontainers.image.base.name'
const BASE_DIGEST = 'org.opencontainers.image.base.digest'

/** Adds the layers to each platform of the base. */
export async function compose(base: Base, composition: Composition): Promise<ComposedImage> {
  const chosen = await platformsOf(base, composition.platforms)
  const parts = new Map<string, Blob>()
  const inherited = new Map<string, Descriptor>()
  const manifests: (Blob & { platform: Platform })[] = []
  for (const { digest, manifest } of chosen) {
    const config = JSON.parse((await base.read(manifest.config)).toString()) as ConfigFile
    const layers = await composition.layers(config.architecture)
    const configured = jsonBlob(MEDIA.config, configOf(config, layers, composition))
    const beneath = manifest.layers.map((layer) => ({ ...descriptorOf(layer), mediaType: ociType(layer.mediaType) }))
    for (const part of [configured, ...layers.map((layer) => layer.blob)]) parts.set(part.digest, part)
    for (const part of beneath) inherited.set(part.digest, part)
    manifests.push({
      ...jsonBlob(MEDIA.manifest, {
        schemaVersion: 2,
        mediaType: MEDIA.manifest,
        config: descriptorOf(configured),
        layers: [...beneath, ...layers.map((layer) => descriptorOf(layer.blob))],
        annotations: annotationsOf(composition.labels, base, digest),
      }),
      platform: platformOf(config),
    })
  }
  const index = jsonBlob(MEDIA.index, {
    schemaVersion: 2,
    mediaType: MEDIA.index,
    manifests: manifests.map((one) => ({ ...descriptorOf(one), platform: one.platform })),
    annotations: annotationsOf(composition.labels, base, base.root.digest),
  })
  return { index, manifests, parts: [...parts.values()], inherited: [...inherited.values()] }
}

const annotationsOf = (labels: Record<string, string>, { name }: Base, digest: string): Record<string, string> => ({
  ...labels,
  ...(name !== undefined && { [BASE_NAME]: name }),
  [BASE_DIGEST]: digest,
})

function configOf(
  base: ConfigFile,
  layers: readonly Layer[],
  { command, start, labels, created }: Composition,
): ConfigFile {
  const { Cmd: _, ...inherited } = base.config ?? {}
  const [first = ''] = inherited.Entrypoint ?? []
  return {
    ...base,
    created,
    config: {
      ...inherited,
      // Some bases have no `node` on their PATH. Their entrypoint names its path. deploy/images/fairlead/Dockerfile says why
      // the young generation is small.
      Entrypoint: [basename(first) === 'node' ? first : 'node', '--max-semi-space-size=4', command],
      ...(start.length > 0 && { Cmd: [...start] }),
      Env: [...(inherited.Env ?? []).filter((one) => !one.startsWith('NODE_ENV=')), 'NODE_ENV=production'],
      User: USER,
      WorkingDir: '/app',
      Labels: { ...inherited.Labels, ...labels },
    },
    rootfs: { type: 'layers', diff_ids: [...base.rootfs.diff_ids, ...layers.map(({ diffId }) => diffId)] },
    history: [...(base.history ?? []), ...layers.map(({ createdBy }) => ({ created, created_by: createdBy }))],
  }
}

interface Chosen {
  digest: string
  manifest: Manifest
}

async function platformsOf(base: Base, wanted: readonly string[]): Promise<Chosen[]> {
  const { root } = base
  if (ociType(root.mediaType) === MEDIA.manifest) {
    const manifest = JSON.parse(root.bytes.toString()) as Manifest
    const config = JSON.parse((await base.read(manifest.config)).toString()) as ConfigFile
    const others = wanted.filter((one) => one !== titleOf(config))
    if (others.length > 0) throw noSuchPlatform(others, [titleOf(config)])
    return [{ digest: root.digest, manifest }]
  }
  if (ociType(root.mediaType) !== MEDIA.index)
    throw new UsageError(`the base is of type "${root.mediaType}", which is not an image`)
  const { manifests } = JSON.parse(root.bytes.toString()) as Index
  const byTitle = new Map(manifests.flatMap((one) => (one.platform ? [[titleOf(one.platform), one] as const] : [])))
  const missing = wanted.filter((one) => !byTitle.has(one))
  if (missing.length > 0) throw noSuchPlatform(missing, [...byTitle.keys()])
  const found = wanted.flatMap((one) => byTitle.get(one) ?? [])
  return Promise.all(
    found.map(async (one) => ({
      digest: one.digest,
      manifest: JSON.parse((await base.manifest(one)).toString()) as Manifest,
    })),
  )
}

const titleOf = ({ os, architecture }: Platform): string => `${os}/${architecture}`

const platformOf = ({ os, architecture, variant }: Platform): Platform => ({
  os,
  architecture,
  ...(variant !== undefined && { variant }),
})

const noSuchPlatform = (missing: readonly string[], present: readonly string[]): UsageError =>
  new UsageError(
    `the base has no image for ${missing.join(', ')}, but for ${present.join(', ')}: give those, --platform`,
  )
