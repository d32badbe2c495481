import { join } from 'node:path'
import { addImage, type ImageSource } from '#lab'
import { debianFiles, FINDS_HOSTS } from '../debian.ts'

const LIBC = ['libc6', 'libcrypt1', 'liblzma5', 'libssl3', 'zlib1g']
const BUSYBOX = ['busybox-static']
const PYTHON = [
  ...LIBC,
  'libbz2-1.0',
  'libexpat1',
  'libffi8',
  'libpython3.11-minimal',
  'libpython3.11-stdlib',
  'python3-pymysql',
  'python3.11-minimal',
]
const MARIADB = [
  ...LIBC,
  ...BUSYBOX,
  'libaio1',
  'libcap2',
  'libgcc-s1',
  'libgcrypt20',
  'libgpg-error0',
  'liblz4-1',
  'libnuma1',
  'libpcre2-8-0',
  'libstdc++6',
  'libsystemd0',
  'liburing2',
  'libzstd1',
  'mariadb-server-core',
]

const here = (name: string) => ({ from: join(import.meta.dirname, name) })
const shell = (...applets: string[]) =>
  Object.fromEntries(['sh', ...applets].map((name) => [`bin/${name}`, { link: 'busybox' }]))

/**
 * Adds substitutes for the three images of a VisitorsApp to a registry, under their own names: the page, the REST API
 * of visitors-service, and a server with the MySQL protocol. They consist of Debian 12 packages.
 */
export async function addVisitorsImages(registryUrl: string, cacheDir: string): Promise<void> {
  const images: Record<string, ImageSource> = {
    'mysql:5.7': {
      files: { ...(await debianFiles(MARIADB, cacheDir)), ...shell('cat', 'mkdir'), 'mysqld.sh': here('mysqld.sh') },
      config: { Entrypoint: ['/bin/sh', '/mysqld.sh'] },
    },
    'jdob/visitors-service:1.0.0': {
      files: {
        ...(await debianFiles(PYTHON, cacheDir)),
        ...FINDS_HOSTS,
        'service.py': here('service.py'),
      },
      config: { Entrypoint: ['/usr/bin/python3.11', '/service.py'] },
    },
    'jdob/visitors-webui:1.0.0': {
      files: {
        ...(await debianFiles(BUSYBOX, cacheDir)),
        ...shell('cat', 'httpd', 'mkdir', 'sed'),
        'webui.sh': here('webui.sh'),
      },
      config: { Entrypoint: ['/bin/sh', '/webui.sh'] },
    },
  }
  for (const [name, source] of Object.entries(images)) await addImage(registryUrl, name, source)
}
