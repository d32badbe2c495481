import { existsSync } from 'node:fs'
import { mkdir, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { makeImage } from '#image'
import { addImage, buildImage, ensureBinaries, natsBinaries, silentProgress } from '#lab'
import { debianFiles, FINDS_HOSTS } from '../../deploy/images/debian.ts'
import { writeLayout } from './images.ts'
import { agentProject, packedPackage } from './package.ts'

const LIBRARIES = ['libc6', 'libgcc-s1', 'libstdc++6']
const ARCHITECTURE = process.arch === 'x64' ? 'amd64' : process.arch

/**
 * The images of deploy/fairlead, in a registry under their own names: Fairlead's as `fairlead image` makes it of the package,
 * with the Node.js that runs this, and nats-server as it is built for `local`.
 */
export async function addFairleadImages(registryUrl: string, cacheDir: string): Promise<void> {
  await addNatsImage(registryUrl)
  const { installed } = await packedPackage()
  await pushImage(installed, 'fairlead', { registryUrl, cacheDir })
}

/** The image of the pods that move snapshots of etcd. */
export async function addAgentImage(registryUrl: string, cacheDir: string): Promise<void> {
  const programs = await ensureBinaries(['etcdutl'], silentProgress)
  const add = [`${programs('etcdutl')}:/usr/local/bin/etcdutl`]
  await pushImage(await agentProject(), 'fairlead-etcd-agent', { registryUrl, cacheDir, add })
}

async function pushImage(
  project: string,
  name: string,
  { registryUrl, cacheDir, add = [] }: { registryUrl: string; cacheDir: string; add?: string[] },
): Promise<void> {
  await makeImage(project, {
    base: await nodeBase(cacheDir),
    include: [],
    platforms: [`linux/${ARCHITECTURE}`],
    add,
    push: `${new URL(registryUrl).host}/library/${name}:latest`,
    plainHttp: true,
  })
}

export async function addNatsImage(registryUrl: string): Promise<void> {
  const programs = await ensureBinaries(natsBinaries, silentProgress)
  await addImage(registryUrl, 'nats:2.15.3', {
    files: { 'nats-server': { from: programs('nats-server') } },
    config: { Entrypoint: ['/nats-server'] },
  })
}

/** Stands for the base that is taken by default: the Node.js of this process, and the libraries that it needs. */
export async function nodeBase(cacheDir: string): Promise<string> {
  const folder = join(cacheDir, 'node-base', `${process.version}-${ARCHITECTURE}`)
  if (existsSync(folder)) return folder
  const { layer, config, manifest } = await buildImage({
    files: { ...(await debianFiles(LIBRARIES, cacheDir)), ...FINDS_HOSTS, 'usr/bin/node': { from: process.execPath } },
    config: {},
  })
  const part = `${folder}.${process.pid}`
  await mkdir(part, { recursive: true })
  await writeLayout(part, { root: manifest, blobs: [layer, config], manifests: [] })
  await rename(part, folder).catch(() => rm(part, { recursive: true }))
  return folder
}
