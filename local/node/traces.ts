import { readdir, readlink, rm, rmdir } from 'node:fs/promises'
import type { NodePaths } from './paths.ts'

/**
 * Removes files that the node's programs write outside of its folders: the paths are fixed (kubelet 1.36, containerd
 * 2.4). Keeps files of other programs, and folders that are not empty.
 */
export async function removeTraces(paths: NodePaths): Promise<void> {
  await removeLogLinks(paths)
  await removeNetworkResults(paths)
  await rm('/var/lib/kubelet/device-plugins/kubelet.sock', { force: true })
  await removeIfEmpty('/var/lib/kubelet/device-plugins', '/var/lib/kubelet')
}

/** Removes the kubelet's links to container logs, which are in one folder for all pods. */
async function removeLogLinks(paths: NodePaths): Promise<void> {
  const folder = '/var/log/containers'
  for (const name of await namesIn(folder)) {
    const target = await readlink(`${folder}/${name}`).catch(() => '')
    if (target.startsWith(`${paths.podLogs}/`)) await rm(`${folder}/${name}`, { force: true })
  }
  await removeIfEmpty(folder)
}

/** Removes containerd's records of pod networks, named NETWORK-SANDBOX-INTERFACE. */
async function removeNetworkResults(paths: NodePaths): Promise<void> {
  const folder = '/var/lib/cni/results'
  const sandboxes = await namesIn(`${paths.run}/containerd/io.containerd.grpc.v1.cri/sandboxes`)
  const ours = (await namesIn(folder)).filter((name) => sandboxes.some((sandbox) => name.includes(sandbox)))
  for (const name of ours) await rm(`${folder}/${name}`, { force: true })
  await removeIfEmpty(folder, '/var/lib/cni')
}

async function namesIn(folder: string): Promise<string[]> {
  return readdir(folder).catch(() => [])
}

async function removeIfEmpty(...folders: string[]): Promise<void> {
  for (const folder of folders) await rmdir(folder).catch(() => {}) // not empty, or does not exist
}
