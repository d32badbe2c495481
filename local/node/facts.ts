import { access, constants, readFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { type CgroupLayout, readCgroupLayout } from './cgroups.ts'
import { readClaim } from './claim.ts'
import { isStaticProgram } from './elf.ts'
import { hasProxyRules } from './network.ts'

/** The system programs that a node needs. The others are built. */
const NODE_COMMANDS = ['cc', 'nft', 'ip', 'mount', 'umount', 'busybox'] as const
export type NodeCommand = (typeof NODE_COMMANDS)[number]

/** The facts about this machine that decide whether it can run a node. */
export interface NodeFacts {
  platform: NodeJS.Platform
  root: boolean
  /** The names of NEEDED_CAPABILITIES that this process lacks: it is root only inside of a container. */
  missingCapabilities: string[]
  /** ID and ID_LIKE of /etc/os-release. */
  distributions: string[]
  /** The path of each program; missing programs are left out. */
  commands: Partial<Record<NodeCommand, string>>
  /** busybox needs no shared library, so it runs in an image that contains no other file. */
  staticBusybox: boolean
  cgroups: CgroupLayout
  /** The machine is a node of another Kubernetes, whose packet rules conflict with those of a local node. */
  foreignNode: boolean
}

const NEEDED_CAPABILITIES = { CAP_NET_ADMIN: 12, CAP_SYS_CHROOT: 18, CAP_SYS_PTRACE: 19, CAP_SYS_ADMIN: 21 }

export async function readNodeFacts(): Promise<NodeFacts> {
  const commands = await findCommands()
  const root = process.getuid?.() === 0
  return {
    platform: process.platform,
    root,
    missingCapabilities: missingCapabilities(await read('/proc/self/status')),
    distributions: distributions(await read('/etc/os-release')),
    commands,
    staticBusybox: commands.busybox !== undefined && isStaticProgram(await readFile(commands.busybox)),
    cgroups: await readCgroupLayout(),
    foreignNode: root && commands.nft !== undefined && (await readClaim()) === undefined && (await hasProxyRules()),
  }
}

export function missingCapabilities(procStatus: string): string[] {
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(procStatus)?.[1] ?? '0'}`)
  return Object.entries(NEEDED_CAPABILITIES).flatMap(([name, bit]) => ((effective >> BigInt(bit)) & 1n ? [] : [name]))
}

export function distributions(osRelease: string): string[] {
  return [...osRelease.matchAll(/^ID(?:_LIKE)?="?([^"\n]*)"?$/gm)].flatMap(([, ids]) => ids?.split(' ') ?? [])
}

/** Looks in the folders of administrator programs too, if the user's PATH lacks them. */
async function findCommands(): Promise<Partial<Record<NodeCommand, string>>> {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/bin', '/sbin', '/bin']
  const found = await Promise.all(NODE_COMMANDS.map(async (name) => [name, await findIn(folders, name)] as const))
  return Object.fromEntries(found.filter(([, path]) => path !== undefined))
}

async function findIn(folders: string[], name: string): Promise<string | undefined> {
  for (const folder of folders) {
    const path = join(folder, name)
    const executable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    )
    if (executable) return path
  }
  return undefined
}

async function read(file: string): Promise<string> {
  return readFile(file, 'utf8').catch(() => '')
}
