import { existsSync } from 'node:fs'
import { readdir, readFile, readlink, rm, rmdir } from 'node:fs/promises'
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ProcessGroup } from '../processes.ts'
import { killNow, type RunningProgram, removeCgroup, runningPrograms } from './cgroups.ts'
import { dropClaim, readClaim, withMachine } from './claim.ts'
import { tryRun } from './command.ts'
import { removeNetwork, restoreKernelSettings } from './network.ts'
import { NODE_ID, type NodePaths, nodePaths, pathsOf } from './options.ts'

const SHIM = 'containerd-shim-runc-v2'
const NODE_PROCESSES = ['kubelet', 'kube-proxy', 'coredns', 'containerd', 'registry', 'kwok']

/** Retries, in case another process removes the same files. */
const REMOVE = { recursive: true, force: true, maxRetries: 5 }

/**
 * Ends all processes of the node of `dir`, including pods, and removes its traces on the machine. Needs only the
 * folder: the process that started the node, the kubelet and containerd may be dead. Does nothing without a node.
 */
export async function stopNode(dir: string, processes: ProcessGroup): Promise<void> {
  await Promise.all(NODE_PROCESSES.map((name) => processes.stop(name)))
  if (await hasTraces(dir)) await withMachine(() => removeNode(dir))
}

async function hasTraces(dir: string): Promise<boolean> {
  const { run, state } = nodePaths(dir)
  return existsSync(run) || existsSync(state) || (await readClaim())?.dir === resolve(dir)
}

/** The caller must hold the machine (withMachine). The folder may be deleted; its name is enough. */
export async function removeNode(dir: string): Promise<void> {
  await clear(nodePaths(dir))
  await giveMachineBack(dir)
}

/**
 * Removes remains of earlier nodes, such as after a power loss. The caller must hold the machine (withMachine) and have
 * found no claim, so all nodes found are unused.
 */
export async function removeStrays(): Promise<void> {
  const folders = await Promise.all(['/run', '/var/lib'].map((parent) => readdir(parent)))
  const ids = new Set(folders.flat().filter((name) => NODE_ID.test(name)))
  for (const id of ids) await clear(pathsOf(id))
  await removeNetwork()
}

async function clear(paths: NodePaths): Promise<void> {
  await endPrograms(paths)
  await removeCgroup(paths.id)
  await unmountAll(paths)
  await removeTraces(paths)
  await Promise.all([paths.run, paths.state].map((folder) => rm(folder, REMOVE)))
}

/** True while containerd and the kubelet run: pods need both. */
export async function nodeWorks(dir: string): Promise<boolean> {
  const names = (await programsOf(nodePaths(dir))).map(({ program }) => program)
  return names.includes('kubelet') && names.includes('containerd')
}

/**
 * Finds the node's programs by their arguments: shims have no parent, and the pid files may be deleted with the folder,
 * but each program was started with one of its paths.
 */
async function programsOf(paths: NodePaths): Promise<RunningProgram[]> {
  const ours = [SHIM, ...NODE_PROCESSES]
  const named = (arg: string) => arg.includes(`${paths.run}/`) || arg.includes(`${paths.state}/`)
  return (await runningPrograms()).filter(({ program, args }) => ours.includes(program) && args.some(named))
}

async function endPrograms(paths: NodePaths): Promise<void> {
  for (let left = await programsOf(paths); left.length > 0; left = await programsOf(paths)) {
    for (const { pid } of left) killNow(pid)
    await sleep(10)
  }
}

/**
 * Unmounts the last mount first, until none is left: mounts can be nested or stacked. Another process may do the same
 * at the same time.
 */
async function unmountAll(paths: NodePaths): Promise<void> {
  const deadline = Date.now() + 10_000
  for (let mounts = await mountsOf(paths); mounts.length > 0; mounts = await mountsOf(paths)) {
    if (Date.now() > deadline) throw new Error(`cannot be unmounted: ${mounts.join(', ')}`)
    await tryRun('umount', ['--lazy', ...mounts.reverse()])
  }
}

async function mountsOf(paths: NodePaths): Promise<string[]> {
  const table = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '')
  return mountPoints(table).filter((path) => path.startsWith(`${paths.run}/`) || path.startsWith(`${paths.state}/`))
}

/**
 * Returns the mount points of /proc/self/mountinfo, in the order of mounting. The file escapes spaces and other
 * characters as octal numbers.
 */
export function mountPoints(mountinfo: string): string[] {
  const paths = mountinfo.split('\n').map((line) => line.split(' ')[4] ?? '')
  return paths.map((path) =>
    path.replace(/\\([0-7]{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8))),
  )
}

/** Removes link and packet rules and restores kernel settings if they belong to this cluster. */
async function giveMachineBack(dir: string): Promise<void> {
  const claim = await readClaim()
  if (claim?.dir !== resolve(dir)) return
  await removeNetwork()
  await restoreKernelSettings(claim.settings)
  await dropClaim()
}

/**
 * Removes files that the node's programs write outside of its folders: the paths are fixed (kubelet 1.36, containerd
 * 2.4). Keeps files of other programs, and folders that are not empty.
 */
async function removeTraces(paths: NodePaths): Promise<void> {
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
