import { parseReference, Repository } from '#image'
import { buildImage, type ImageSource } from './image.ts'

/**
 * Makes an image and stores it in a registry under the name that a manifest gives: `busybox`, `gcr.io/x/y:v1` … The
 * local node asks its own registry for the images of all registries, so any name works there.
 * Returns the image's digest.
 */
export async function addImage(registryUrl: string, name: string, source: ImageSource): Promise<string> {
  const { repository, tag = 'latest' } = parseReference(name)
  const image = await buildImage(source)
  // As a mirror has it: the host of the name is left out.
  const mirrored = { registry: new URL(registryUrl).host, repository }
  const target = new Repository(mirrored, { actions: 'pull,push', plainHttp: true })
  for (const part of [image.layer, image.config]) if (!(await target.has(part.digest))) await target.push(part)
  await target.pushManifest(image.manifest, tag)
  return image.manifest.digest
}
