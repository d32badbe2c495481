import { fileURLToPath } from 'node:url'
import { NODE_IP } from './addresses.ts'
import { run } from './command.ts'
import { PAUSE_IMAGE } from './containerd.ts'
import { readNodeFacts } from './facts.ts'
import type { ImageFiles } from './image.ts'
import { addImage } from './image-push.ts'
import type { NodeOptions } from './options.ts'
import type { NodePaths } from './paths.ts'

const MAIN = fileURLToPath(new URL('./registry-main.ts', import.meta.url))

/** Starts the registry from which the node's containerd pulls for all registries. It is empty at first. */
export async function startRegistry({ processes }: NodeOptions, paths: NodePaths, port: number): Promise<void> {
  await processes.start({
    name: 'registry',
    command: process.execPath,
    args: [MAIN, NODE_IP, String(port), `${paths.state}/registry`],
    stopSignal: 'SIGKILL',
  })
}

/** Adds `busybox`, made from the system's program, and the image that holds a pod's namespaces. */
export async function addBaseImages(registryUrl: string): Promise<void> {
  const busybox = (await readNodeFacts()).commands.busybox
  if (busybox === undefined) throw new Error('busybox is gone from this machine: install busybox-static')
  await Promise.all([
    addImage(registryUrl, PAUSE_IMAGE, {
      files: { 'bin/sleep': { from: busybox } },
      config: { Entrypoint: ['/bin/sleep', '1000000000'] },
    }),
    addImage(registryUrl, 'busybox', { files: await busyboxFiles(busybox), config: { Cmd: ['sh'] } }),
  ])
}

async function busyboxFiles(busybox: string): Promise<ImageFiles> {
  const applets = (await run(busybox, ['--list'])).split('\n').filter((name) => name !== '' && name !== 'busybox')
  const links = applets.map((name) => [`bin/${name}`, { link: 'busybox' }] as const)
  return { 'bin/busybox': { from: busybox }, ...Object.fromEntries(links) }
}
