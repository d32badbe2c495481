import { parseReference, Repository } from '#image'
import { buildImage, type ImageSource } from './image.ts'

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
