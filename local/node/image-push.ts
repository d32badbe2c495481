import { type Blob, buildImage, type ImageSource } from './image.ts'

/**
 * Makes an image and stores it in a registry under the name that a manifest gives: `busybox`, `gcr.io/x/y:v1` … The
 * local node asks its own registry for the images of all registries, so any name works there.
 * Returns the image's digest.
 */
export async function addImage(registryUrl: string, name: string, source: ImageSource): Promise<string> {
  const { repository, tag } = repositoryOf(name)
  const image = await buildImage(source)
  const url = `${registryUrl}/v2/${repository}`
  await Promise.all([putBlob(url, image.layer), putBlob(url, image.config)])
  await send('PUT', `${url}/manifests/${tag}`, image.manifest)
  return image.manifest.digest
}

/** Where a registry that mirrors all others has the image: the host of the name is left out, as a mirror does. */
export function repositoryOf(name: string): { repository: string; tag: string } {
  const [, path, tag = 'latest'] = /^(.+?)(?::([\w][\w.-]*))?$/.exec(name) ?? []
  const parts = path?.split('/') ?? []
  const host = parts.length > 1 && /[.:]|^localhost$/.test(parts[0] ?? '') ? parts.shift() : 'docker.io'
  if (host === 'docker.io' && parts.length === 1) parts.unshift('library')
  const repository = parts.join('/')
  if (!/^[a-z0-9]+([._/-]+[a-z0-9]+)*$/.test(repository)) {
    throw new Error(`"${name}" is no image name that can be pushed: write it like gcr.io/project/app:v1, in lower case`)
  }
  return { repository, tag }
}

async function putBlob(url: string, blob: Blob): Promise<void> {
  const present = await fetch(`${url}/blobs/${blob.digest}`, { method: 'HEAD' })
  if (present.ok) return
  const upload = await send('POST', `${url}/blobs/uploads/`)
  const location = new URL(upload.headers.get('location') ?? '', url)
  location.searchParams.set('digest', blob.digest)
  await send('PUT', location.href, { ...blob, mediaType: 'application/octet-stream' })
}

async function send(method: string, url: string, blob?: Blob): Promise<Response> {
  const body = blob && { body: blob.bytes, headers: { 'content-type': blob.mediaType } }
  const response = await fetch(url, { method, ...body })
  const answer = await response.text()
  if (!response.ok) throw new Error(`the registry refused ${method} ${url} with ${response.status}: ${answer}`)
  return response
}
