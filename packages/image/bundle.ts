import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parse } from 'yaml'
import { UsageError } from '#process/exit'
import type { Base } from './base.ts'
import { descriptorOf, jsonBlob, MEDIA } from './blob.ts'
import { entriesFrom, layerOf } from './files.ts'
import { nameOf, parseReference } from './reference.ts'
import { Repository } from './registry.ts'
import { pushImage, writeArchive } from './store.ts'

export interface BundleImageOptions {
  push?: string
  output?: string
  plainHttp?: boolean
  env?: NodeJS.ProcessEnv
}

const PARTS = ['manifests', 'metadata']

const NOTHING: Base = {
  root: jsonBlob(MEDIA.empty, {}),
  read: () => Promise.reject(new Error('a bundle has no base')),
  manifest: () => Promise.reject(new Error('a bundle has no base')),
}

/**
 * Makes the image of a bundle for OLM, as `FROM scratch` does: files, and the annotations as labels. Returns its
 * reference by digest.
 */
export async function makeBundleImage(folder: string, options: BundleImageOptions): Promise<string> {
  const { push, output, plainHttp = false, env = process.env } = options
  const target = push === undefined ? undefined : parseReference(push)
  const Labels = await labelsOf(folder)
  const entries = await Promise.all(PARTS.map((part) => entriesFrom(join(folder, part), part)))
  const layer = await layerOf(entries.flat(), 'fairlead image: bundle')
  const config = jsonBlob(MEDIA.config, {
    architecture: 'amd64',
    os: 'linux',
    config: { Labels },
    rootfs: { type: 'layers', diff_ids: [layer.diffId] },
  })
  const root = jsonBlob(MEDIA.manifest, {
    schemaVersion: 2,
    mediaType: MEDIA.manifest,
    config: descriptorOf(config),
    layers: [descriptorOf(layer.blob)],
  })
  const image = { index: root, manifests: [], parts: [config, layer.blob], inherited: [] }
  if (output !== undefined) await writeArchive(output, image, NOTHING, { reference: target && nameOf(target) })
  if (target === undefined) return root.digest
  await pushImage(image, NOTHING, new Repository(target, { actions: 'pull,push', plainHttp, env }))
  const { registry, repository } = target
  return nameOf({ registry, repository, digest: root.digest })
}

async function labelsOf(folder: string): Promise<Record<string, string>> {
  const file = join(folder, 'metadata/annotations.yaml')
  if (!existsSync(file) || !existsSync(join(folder, 'manifests')))
    throw new UsageError(
      `${folder} has no metadata/annotations.yaml and manifests/: fairlead generate bundle makes them`,
    )
  return (parse(await readFile(file, 'utf8')) as { annotations: Record<string, string> }).annotations
}
