import type { Progress } from '../progress.ts'
import { run } from './command.ts'
import { type NodeCommand, type NodeFacts, readNodeFacts } from './facts.ts'

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
