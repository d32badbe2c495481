import { rename, rm, writeFile } from 'node:fs/promises'
import type { Base } from './base.ts'
import { type Blob, type Descriptor, descriptorOf, type Index, jsonBlob, MEDIA, RegistryError } from './blob.ts'
import type { ComposedImage } from './compose.ts'
import { type TarEntry, tarStream } from './files.ts'
import type { Repository } from './registry.ts'

/**
 * Pushes the image to a registry. Skips parts that the registry has, and takes parts over from the base's repository in
 * the same registry.
 */
export async function pushImage(image: ComposedImage, base: Base, repository: Repository): Promise<void> {
  const { registry, tag, repository: name } = repository.reference
  const from = base.reference?.registry === registry ? base.reference.repository : undefined
  for (const part of image.inherited) {
    if (await repository.has(part.digest)) continue
    if (from !== undefined && from !== name && (await repository.mount(part.digest, from))) continue
    await repository.push({ ...part, bytes: await base.read(part) })
  }
  for (const part of image.parts) if (!(await repository.has(part.digest))) await repository.push(part)
  for (const manifest of image.manifests) await repository.pushManifest(manifest)
  await repository.pushManifest(image.index, tag ?? image.index.digest)
}

/**
 * Stores a document that refers to the image, so that tools find it by the image's digest (OCI referrers). For a
 * registry without the referrers API, the list is stored under its tag.
 */
export async function attach(document: Blob, subject: Blob, created: string, repository: Repository): Promise<void> {
  const empty = jsonBlob(MEDIA.empty, {})
  const manifest = jsonBlob(MEDIA.manifest, {
    schemaVersion: 2,
    mediaType: MEDIA.manifest,
    artifactType: document.mediaType,
    config: descriptorOf(empty),
    layers: [descriptorOf(document)],
    subject: descriptorOf(subject),
    annotations: { 'org.opencontainers.image.created': created },
  })
  for (const part of [empty, document]) if (!(await repository.has(part.digest))) await repository.push(part)
  if (await repository.pushManifest(manifest)) return
  const tag = subject.digest.replace(':', '-')
  const others = (await referringBy(tag, repository)).filter(({ digest }) => digest !== manifest.digest)
  const manifests = [...others, { ...descriptorOf(manifest), artifactType: document.mediaType }]
  await repository.pushManifest(jsonBlob(MEDIA.index, { schemaVersion: 2, mediaType: MEDIA.index, manifests }), tag)
}

async function referringBy(tag: string, repository: Repository): Promise<Descriptor[]> {
  try {
    return (JSON.parse((await repository.manifest(tag)).bytes.toString()) as Index).manifests
  } catch (error) {
    if (error instanceof RegistryError && error.status === 404) return []
    throw error
  }
}

/**
 * Writes the image as the archive of an OCI layout, with a document beside it, if there is one. The file appears only
 * when it is complete.
 */
export async function writeArchive(
  file: string,
  image: ComposedImage,
  base: Base,
  { document, reference }: { document?: Blob; reference: string | undefined },
): Promise<void> {
  const ready = new Map<string, Blob>(
    [image.index, ...image.manifests, ...image.parts].map((part) => [part.digest, part]),
  )
  const described = descriptorOf(image.index)
  const annotations = reference && {
    'org.opencontainers.image.ref.name': reference,
    'io.containerd.image.name': reference,
  }
  const index = { schemaVersion: 2, manifests: [annotations ? { ...described, annotations } : described] }
  const all: Descriptor[] = [...ready.values(), ...image.inherited]
  const fileOf = (path: string, content: Uint8Array): TarEntry => ({ type: 'file', path, mode: 0o644, content })
  async function* entries(): AsyncGenerator<TarEntry> {
    for (const path of ['blobs', 'blobs/sha256']) yield { type: 'directory', path, mode: 0o755 }
    for (const part of all.toSorted((a, b) => (a.digest < b.digest ? -1 : 1)))
      yield fileOf(`blobs/${part.digest.replace(':', '/')}`, ready.get(part.digest)?.bytes ?? (await base.read(part)))
    yield fileOf('index.json', Buffer.from(JSON.stringify(index)))
    yield fileOf('oci-layout', Buffer.from('{"imageLayoutVersion":"1.0.0"}'))
    if (document !== undefined) yield fileOf('sbom.spdx.json', document.bytes)
  }
  const temporary = `${file}.part`
  try {
    await writeFile(temporary, tarStream(entries()))
    await rename(temporary, file)
  } finally {
    await rm(temporary, { force: true })
  }
}
