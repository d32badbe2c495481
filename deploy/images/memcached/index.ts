import { addImage } from '#lab'
import { debianFiles } from '../debian.ts'

const PACKAGES = ['libc6', 'libdb5.3', 'libevent-2.1-7', 'libsasl2-2', 'libssl3', 'memcached', 'zlib1g']

/** Adds a substitute for the image of a Memcached to a registry, under its own name: memcached 1.6 of Debian 12. */
export async function addMemcachedImage(registryUrl: string, cacheDir: string): Promise<void> {
  const files = await debianFiles(PACKAGES, cacheDir)
  await addImage(registryUrl, 'memcached:1.6-alpine', { files, config: { Cmd: ['/usr/bin/memcached'] } })
}
