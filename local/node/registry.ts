import { writeFile } from 'node:fs/promises'
import { NODE_IP } from './addresses.ts'
import { run } from './command.ts'
import { PAUSE_IMAGE } from './containerd.ts'
import { readNodeFacts } from './facts.ts'
import type { ImageFiles } from './image.ts'
import { addImage } from './image-push.ts'
import type { NodeOptions } from './options.ts'
import type { NodePaths } from './paths.ts'

/** The registry that this node's containerd takes for every registry of the world. It starts empty. */
export async function startRegistry(options: NodeOptions, paths: NodePaths, port: number): Promise<void> {
  const config = {
    version: '0.1',
    log: { level: 'warn', accesslog: { disabled: true } },
    storage: { filesystem: { rootdirectory: `${paths.state}/registry` }, delete: { enabled: true } },
    http: { addr: `${NODE_IP}:${port}` },
  }
  await writeFile(`${paths.run}/registry.json`, JSON.stringify(config))
  await options.processes.start({
    name: 'registry',
    command: options.binaries('registry'),
    args: ['serve', `${paths.run}/registry.json`],
    stopSignal: 'SIGKILL',
  })
}

/** `busybox`, made from the system's own program, and the image that holds a pod's namespaces. */
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
