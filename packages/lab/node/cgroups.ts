import { mkdir, readdir, readFile, readlink, rmdir, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** The cgroup setup of this machine: version 1 has a tree for each controller, version 2 a single one. */
export interface CgroupLayout {
  version: 1 | 2
  /** The mount points of the trees, including those without controllers (systemd's, the unified one of a hybrid). */
  trees: string[]
  /** The reason why a kubelet cannot use it, as a text that ends a sentence. */
  problem?: string
}

const NEEDED_V1 = ['cpu', 'cpuacct', 'cpuset', 'memory', 'devices', 'freezer', 'pids']
const NEEDED_V2 = ['cpu', 'cpuset', 'memory', 'pids']

export async function readCgroupLayout(): Promise<CgroupLayout> {
  const mounts = await readFile('/proc/mounts', 'utf8').catch(() => '')
  const layout = cgroupLayout(mounts)
  if (layout.version === 1 || layout.problem !== undefined) return layout
  const root = layout.trees[0] as string
  const problem = unifiedProblem(await readUnified(root))
  return problem === undefined ? layout : { ...layout, problem }
}

/** Parses /proc/mounts. */
export function cgroupLayout(procMounts: string): CgroupLayout {
  const mounts = procMounts.split('\n').map((line) => line.split(' '))
  const ofType = (type: string) => mounts.filter((fields) => fields[2] === type)
  const v1 = ofType('cgroup')
  const all = [...v1, ...ofType('cgroup2')]
  const trees = [...new Set(all.map((fields) => fields[1] ?? ''))]
  if (all.length === 0) return { version: 2, trees, problem: 'a mounted cgroup file system' }
  if (all.some((fields) => fields[3]?.split(',').includes('ro'))) {
    return { version: v1.length > 0 ? 1 : 2, trees, problem: 'a writable cgroup file system' }
  }
  if (v1.length === 0) return { version: 2, trees }
  const controllers = v1.flatMap((fields) => fields[3]?.split(',') ?? [])
  const missing = NEEDED_V1.filter((name) => !controllers.includes(name))
  const problem = missing.length === 0 ? {} : { problem: `the cgroup controllers ${missing.join(', ')}` }
  return { version: 1, trees, ...problem }
}

/** The top cgroup of a version 2 tree, as this process sees it. */
export interface UnifiedTop {
  controllers: string[]
  /** The controllers that its children already have. */
  enabled: string[]
  /**
   * True for the machine's own top cgroup, false in a container. Only that cgroup may have processes and children with
   * controllers at the same time.
   */
  isMachineRoot: boolean
  hasProcesses: boolean
}

export function unifiedProblem(top: UnifiedTop): string | undefined {
  const missing = NEEDED_V2.filter((name) => !top.controllers.includes(name))
  if (missing.length > 0) return `the cgroup controllers ${missing.join(', ')}`
  const canEnable = top.isMachineRoot || !top.hasProcesses
  if (canEnable || NEEDED_V2.every((name) => top.enabled.includes(name))) return undefined
  return 'a cgroup tree whose controllers may be handed on (this container has processes at its top)'
}

async function readUnified(root: string): Promise<UnifiedTop> {
  const words = async (file: string) => (await readFile(join(root, file), 'utf8').catch(() => '')).split(/\s+/)
  const entries = await readdir(root).catch((): string[] => [])
  return {
    controllers: await words('cgroup.controllers'),
    enabled: await words('cgroup.subtree_control'),
    isMachineRoot: !entries.includes('cgroup.type'),
    hasProcesses: (await words('cgroup.procs')).some((pid) => pid !== ''),
  }
}

/** Creates a cgroup with this name in each tree, with all controllers that the kubelet needs. */
export async function createCgroup(name: string): Promise<void> {
  const { version, trees } = await readCgroupLayout()
  if (version === 2) await handOnControllers(trees[0] as string)
  for (const tree of trees) await mkdir(join(tree, name), { recursive: true })
  if (version === 1) await copyCpuset(trees, name)
}

async function handOnControllers(root: string): Promise<void> {
  const available = (await readFile(join(root, 'cgroup.controllers'), 'utf8')).trim().split(' ')
  const wanted = available.filter((name) => [...NEEDED_V2, 'hugetlb', 'io'].includes(name))
  await writeFile(join(root, 'cgroup.subtree_control'), wanted.map((controller) => `+${controller}`).join(' '))
}

/** Copies the CPUs of the parent: in version 1 a new cpuset has no CPU, so no process could run in it. */
async function copyCpuset(trees: string[], name: string): Promise<void> {
  for (const tree of trees) {
    for (const file of ['cpuset.cpus', 'cpuset.mems']) {
      const value = await readFile(join(tree, file), 'utf8').catch(() => undefined)
      if (value !== undefined) await writeFile(join(tree, name, file), value)
    }
  }
}

/** Kills all processes in the cgroup, and removes it with its children. */
export async function removeCgroup(name: string): Promise<void> {
  const { trees } = await readCgroupLayout()
  const deadline = Date.now() + 10_000
  while (!(await emptied(trees.map((tree) => join(tree, name))))) {
    if (Date.now() > deadline)
      throw new Error(`processes in the cgroup ${name} cannot be killed; see ps -o pid,stat,cgroup`)
    await sleep(20)
  }
}

async function emptied(groups: string[]): Promise<boolean> {
  const removed = await Promise.all(groups.map(removeTree))
  return removed.every(Boolean)
}

/**
 * Returns true if the cgroup is removed. Only an empty cgroup can be removed, so each call kills the processes that it
 * finds.
 */
async function removeTree(group: string): Promise<boolean> {
  const entries = await readdir(group, { withFileTypes: true }).catch(() => undefined)
  if (entries === undefined) return true
  const children = entries.filter((entry) => entry.isDirectory()).map((entry) => join(group, entry.name))
  await Promise.all(children.map(removeTree))
  await killAll(group)
  return rmdir(group).then(
    () => true,
    () => false,
  )
}

async function killAll(group: string): Promise<void> {
  const pids = (await readFile(join(group, 'cgroup.procs'), 'utf8').catch(() => '')).split('\n').map(Number)
  // The pid 0 is a process of another pid namespace; kill(0) would kill this process group.
  for (const pid of pids.filter((pid) => pid > 0)) killNow(pid)
}

export interface RunningProgram {
  pid: number
  /** The file name of the program at its start. */
  program: string
  args: string[]
}

/** Returns the programs on this machine that this process may inspect. */
export async function runningPrograms(): Promise<RunningProgram[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const programs = await Promise.all(pids.map(programOf))
  return programs.filter((program) => program !== undefined)
}

async function programOf(pid: string): Promise<RunningProgram | undefined> {
  try {
    const file = await readlink(`/proc/${pid}/exe`)
    const args = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0')
    return { pid: Number(pid), program: basename(file.replace(/ \(deleted\)$/, '')), args }
  } catch {
    return undefined // the process has ended, or is a kernel thread
  }
}

export function killNow(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
