import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { addImage, ensureBinaries, natsBinaries, silentProgress } from '#local'
import { debianFiles, FINDS_HOSTS } from '../debian.ts'

const ROOT = join(import.meta.dirname, '../../..')
const LIBRARIES = ['libc6', 'libgcc-s1', 'libstdc++6']

/**
 * Stand-ins for the images of deploy/fairlead, in a registry under their own names: this checkout as the Dockerfile beside
 * has it, with the Node.js that it is run by, and nats-server and etcdutl as they are built for `local`.
 */
export async function addFairleadImages(registryUrl: string, cacheDir: string): Promise<void> {
  const [dockerfile, programs] = await Promise.all([
    readFile(join(import.meta.dirname, 'Dockerfile'), 'utf8'),
    ensureBinaries([...natsBinaries, 'etcdutl'], silentProgress),
  ])
  const folders = [...dockerfile.matchAll(/^COPY ([\w-]+) [\w-]+$/gm)].map(([, name = '']) => name)
  const copied = [...folders, ...(await installedInProduction()), 'package.json']
  const files = Object.fromEntries(copied.map((path) => [`app/${path}`, { from: join(ROOT, path) }]))
  await Promise.all([
    addImage(registryUrl, 'nats:2.15.2', {
      files: { 'nats-server': { from: programs('nats-server') } },
      config: { Entrypoint: ['/nats-server'] },
    }),
    addImage(registryUrl, 'fairlead:latest', {
      files: {
        ...(await debianFiles(LIBRARIES, cacheDir)),
        ...FINDS_HOSTS,
        ...files,
        'usr/bin/node': { from: process.execPath },
        'usr/local/bin/etcdutl': { from: programs('etcdutl') },
      },
      config: { Entrypoint: ['node', '/app/cli/bin.js'], User: '65532:65532', WorkingDir: '/app' },
    }),
  ])
}

/** As `npm ci --omit=dev` would. */
async function installedInProduction(): Promise<string[]> {
  const { packages } = JSON.parse(await readFile(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; optional?: boolean }>
  }
  return Object.entries(packages)
    .filter(([path, { dev, optional }]) => /^node_modules\/(?!.*\/node_modules\/)/.test(path) && !dev && !optional)
    .map(([path]) => path)
}
