import { access, constants, readFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import type { Progress } from '../progress.ts'
import { type CgroupLayout, readCgroupLayout } from './cgroups.ts'
import { readClaim } from './claim.ts'
import { run } from './command.ts'
import { hasProxyRules } from './network.ts'

/**
 * Whether this machine can run a real node. `missing` contains the missing requirements, as texts that end a sentence.
 */
type NodeRequirements = { ok: true } | { ok: false; missing: string[]; installable: boolean }

/** The packages of Debian and Ubuntu, keyed by the text of the missing requirement. */
const PACKAGES: Record<string, string[]> = {
  'a C compiler (cc)': ['gcc', 'libc6-dev'],
  'nft (nftables)': ['nftables'],
  'ip (iproute2)': ['iproute2'],
  'mount and umount': ['mount'],
  'a static busybox': ['busybox-static'],
}

const COMMAND_WORDS: Record<Exclude<NodeCommand, 'busybox'>, keyof typeof PACKAGES> = {
  cc: 'a C compiler (cc)',
  nft: 'nft (nftables)',
  ip: 'ip (iproute2)',
  mount: 'mount and umount',
  umount: 'mount and umount',
}

export async function nodeRequirements(): Promise<NodeRequirements> {
  return judge(await readNodeFacts())
}

export function judge(facts: NodeFacts): NodeRequirements {
  if (facts.platform !== 'linux') return { ok: false, missing: ['Linux'], installable: false }
  const rights = missingRights(facts)
  const programs = missingPrograms(facts)
  if (rights.length + programs.length === 0) return { ok: true }
  const hasApt = facts.distributions.some((id) => id === 'debian' || id === 'ubuntu')
  return { ok: false, missing: [...rights, ...programs], installable: rights.length === 0 && hasApt }
}

/** Requirements without a package: the user, the kernel or the container must provide them. */
function missingRights({ root, missingCapabilities, cgroups, foreignNode }: NodeFacts): string[] {
  if (!root) return ['root rights']
  return [
    ...(missingCapabilities.length > 0 ? [`the rights of a real root (${missingCapabilities.join(', ')})`] : []),
    ...(cgroups.problem === undefined ? [] : [cgroups.problem]),
    ...(foreignNode ? ['room for a second Kubernetes node (another kube-proxy has its rules here)'] : []),
  ]
}

function missingPrograms({ commands, staticBusybox }: NodeFacts): string[] {
  const words = Object.entries(COMMAND_WORDS).flatMap(([name, word]) => (name in commands ? [] : [word]))
  return [...new Set([...words, ...(staticBusybox ? [] : ['a static busybox'])])]
}

/** Installs the installable requirements of nodeRequirements() with the system's package manager. */
export async function installRequirements(missing: string[], progress: Progress): Promise<void> {
  const packages = missing.flatMap((what) => PACKAGES[what] ?? [])
  progress.line(`The node needs ${missing.join(', ')}: installing ${packages.join(' ')} with apt-get`)
  await install(packages).catch(async () => {
    await aptGet(['update'])
    await install(packages)
  })
}

async function install(packages: string[]): Promise<void> {
  await aptGet(['install', '--yes', '--no-install-recommends', ...packages])
}

async function aptGet(args: string[]): Promise<void> {
  await run('apt-get', ['--quiet', ...args], { env: { DEBIAN_FRONTEND: 'noninteractive' } })
}

/** The system programs that a node needs. The others are built. */
const NODE_COMMANDS = ['cc', 'nft', 'ip', 'mount', 'umount', 'busybox'] as const
type NodeCommand = (typeof NODE_COMMANDS)[number]

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

const PROGRAM_HEADER_INTERPRETER = 3

/**
 * Whether a Linux program (64-bit ELF, little-endian) runs without shared libraries: it names no loader. False for
 * other files.
 */
export function isStaticProgram(file: Buffer): boolean {
  if (file.length < 64 || file.readUInt32BE(0) !== 0x7f454c46 || file[4] !== 2 || file[5] !== 1) return false
  const table = Number(file.readBigUInt64LE(32))
  const entrySize = file.readUInt16LE(54)
  const entries = file.readUInt16LE(56)
  if (table + entries * entrySize > file.length) return false
  const types = Array.from({ length: entries }, (_, index) => file.readUInt32LE(table + index * entrySize))
  return entries > 0 && !types.includes(PROGRAM_HEADER_INTERPRETER)
}
