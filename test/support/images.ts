import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Blob, blob, descriptorOf, jsonBlob, MEDIA, type Repository, tar } from '#image'

/** The parts of an image; `root` is its manifest, or an index. */
export interface Parts {
  root: Blob
  blobs: Blob[]
  manifests: Blob[]
}

/** Writes an image as a folder that is an OCI layout. */
export async function writeLayout(folder: string, { root, blobs, manifests }: Parts): Promise<string> {
  await mkdir(join(folder, 'blobs/sha256'), { recursive: true })
  for (const part of [root, ...blobs, ...manifests])
    await writeFile(join(folder, 'blobs', part.digest.replace(':', '/')), part.bytes)
  await writeFile(join(folder, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests: [descriptorOf(root)] }))
  await writeFile(join(folder, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}')
  return folder
}

export async function pushParts(
  { root, blobs, manifests }: Parts,
  repository: Repository,
  tag: string,
): Promise<string> {
  for (const part of blobs) await repository.push(part)
  for (const manifest of manifests) await repository.pushManifest(manifest)
  await repository.pushManifest(root, tag)
  return root.digest
}

/** A base for two architectures with one small layer each, which names its parts as Docker Hub does. */
export async function smallBase(architectures: readonly string[] = ['amd64', 'arm64']): Promise<Parts> {
  const docker = 'application/vnd.docker'
  const blobs: Blob[] = []
  const manifests: (Blob & { platform: object })[] = []
  for (const architecture of architectures) {
    const content = Buffer.from(architecture)
    const archive = await tar([{ type: 'file', path: 'arch', mode: 0o644, content }])
    const layer = blob(`${docker}.image.rootfs.diff.tar`, archive)
    const config = jsonBlob(`${docker}.container.image.v1+json`, {
      architecture,
      os: 'linux',
      config: { Env: ['PATH=/bin', 'NODE_ENV=x'], Entrypoint: ['/nodejs/bin/node'], Cmd: ['x'] },
      rootfs: { type: 'layers', diff_ids: [layer.digest] },
    })
    blobs.push(layer, config)
    const manifest = jsonBlob(`${docker}.distribution.manifest.v2+json`, {
      schemaVersion: 2,
      mediaType: `${docker}.distribution.manifest.v2+json`,
      config: descriptorOf(config),
      layers: [descriptorOf(layer)],
    })
    manifests.push({ ...manifest, platform: { os: 'linux', architecture } })
  }
  const root = jsonBlob(MEDIA.index, {
    schemaVersion: 2,
    mediaType: MEDIA.index,
    manifests: manifests.map((one) => ({ ...descriptorOf(one), platform: one.platform })),
  })
  return { root, blobs, manifests }
}

/** A project with a function, installed as npm does it, of packages that are as small as can be. */
export async function writeProject(folder: string, files: Record<string, string> = {}): Promise<string> {
  const json = (value: object) => JSON.stringify(value)
  const all: Record<string, string> = {
    'package.json': json({
      name: '@me/shops',
      version: '1.2.0',
      dependencies: { fairlead: '1' },
      devDependencies: { typescript: '7' },
    }),
    'src/index.ts': 'export const shops = 1\n',
    'src/index.test.ts': 'test\n',
    '.env': 'PASSWORD=secret\n',
    'node_modules/fairlead/package.json': json({
      name: 'fairlead',
      version: '1.0.0',
      license: 'Apache-2.0',
      dependencies: { '@a/zod': '4' },
    }),
    'node_modules/fairlead/cli/bin.js': '#!/usr/bin/env node\n',
    'node_modules/fairlead/cli/index.js': '\n',
    'node_modules/fairlead/node_modules/@a/zod/package.json': json({
      name: '@a/zod',
      version: '4.0.0',
      license: 'MIT',
    }),
    'node_modules/@a/zod/package.json': json({ name: '@a/zod', version: '3.0.0' }),
    'node_modules/typescript/package.json': json({ name: 'typescript', version: '7.0.0' }),
    ...files,
  }
  for (const [path, text] of Object.entries(all)) {
    await mkdir(join(folder, path, '..'), { recursive: true })
    await writeFile(join(folder, path), text)
  }
  return folder
}
