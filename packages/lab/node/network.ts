import { readFile, writeFile } from 'node:fs/promises'
import { run, tryRun } from './command.ts'
import { NETWORK_CIDR, NODE_IP, NODE_LINK, POD_CIDR, SERVICE_CIDR } from './options.ts'

/**
 * The tables of Fairlead, of kube-proxy and of the portmap plugin. The latter two have fixed names, which is one reason
 * for the limit of one node per machine.
 */
const TABLES = ['ip fairlead', 'ip kube-proxy', 'ip6 kube-proxy', 'ip cni_hostport', 'ip6 cni_hostport']

/**
 * Pods reach other networks under the machine's address. The machine forwards packets now, but packets from outside do
 * not reach pods, services or the node's address.
 */
const RULES = `
table ip fairlead {
  chain post {
    type nat hook postrouting priority srcnat
    ip saddr ${POD_CIDR} ip daddr != { ${NETWORK_CIDR}, ${SERVICE_CIDR} } masquerade
  }
  chain guard {
    type filter hook prerouting priority raw
    iifname != { "lo", "veth*" } ip daddr { ${NETWORK_CIDR}, ${SERVICE_CIDR} } drop
  }
}`

/** Adds the node's address to a bridge without members, since not every kernel has links of the kind `dummy`. */
export async function createNetwork(): Promise<void> {
  await run('ip', ['link', 'add', NODE_LINK, 'type', 'bridge'])
  await run('ip', ['address', 'add', `${NODE_IP}/32`, 'dev', NODE_LINK])
  await run('ip', ['link', 'set', NODE_LINK, 'up'])
  await writeFile('/proc/sys/net/ipv4/ip_forward', '1')
  await openFirewalls()
  await run('nft', ['-f', '-'], { input: RULES })
}

/** Removes the node's link. The links of pods are removed with their network namespaces. */
export async function removeNetwork(): Promise<void> {
  await tryRun('ip', ['link', 'delete', NODE_LINK])
  await closeFirewalls()
  for (const table of TABLES) await tryRun('nft', ['delete', 'table', ...table.split(' ')])
}

/** True if a kube-proxy, of this node or another one, has created its rules. */
export async function hasProxyRules(): Promise<boolean> {
  const tables = await run('nft', ['list', 'tables']).catch(() => '')
  return /^table ip kube-proxy$/m.test(tables)
}

/** Kernel settings that the kubelet and the network plugins change for the whole machine. */
const SETTINGS = [
  'kernel/keys/root_maxbytes',
  'kernel/keys/root_maxkeys',
  'kernel/panic',
  'kernel/panic_on_oops',
  'net/ipv4/ip_forward',
  'vm/overcommit_memory',
  'vm/panic_on_oom',
]

/** Values, keyed by setting (a path below /proc/sys). */
export type KernelSettings = Record<string, string>

export async function readKernelSettings(): Promise<KernelSettings> {
  const read = async (name: string) => [name, (await readFile(`/proc/sys/${name}`, 'utf8').catch(() => '')).trim()]
  return Object.fromEntries(await Promise.all(SETTINGS.map(read)))
}

export async function restoreKernelSettings(before: KernelSettings): Promise<void> {
  const now = await readKernelSettings()
  const changed = Object.entries(before).filter(([name, value]) => value !== '' && now[name] !== value)
  for (const [name, value] of changed) await writeFile(`/proc/sys/${name}`, value).catch(() => {})
}

/** The parts of nft's JSON output that are used. */
interface Listing {
  nftables: { chain?: Chain; rule?: Rule }[]
}

interface Chain {
  family: string
  table: string
  name: string
  /** A chain without a hook runs only when another chain jumps to it. */
  hook?: string
  type?: string
}

interface Rule {
  family: string
  table: string
  chain: string
  handle: number
  comment?: string
}

/** The comment that marks the node's rules in other chains. */
const COMMENT = 'fairlead-node'

/** The packets that a firewall of the machine (Docker's, ufw's, firewalld's) must accept for the network of pods. */
const ALLOWED: Record<string, string[][]> = {
  forward: [
    ['ip', 'saddr', POD_CIDR],
    ['ip', 'daddr', POD_CIDR],
  ],
  input: [['ip', 'saddr', POD_CIDR, 'ip', 'daddr', NODE_IP]],
}

/**
 * Adds rules to the machine's firewalls, which remain until closeFirewalls(). Must run before the node's own tables
 * exist. Without JSON support in nft, the chains are unknown: no rule is added, and pods may not reach each other.
 */
async function openFirewalls(): Promise<void> {
  for (const { family, table, name, hook } of filterChains(await list('chains'))) {
    for (const match of ALLOWED[hook ?? ''] ?? []) {
      await tryRun('nft', ['insert', 'rule', family, table, name, ...match, 'accept', 'comment', `"${COMMENT}"`])
    }
  }
}

async function closeFirewalls(): Promise<void> {
  for (const { family, table, chain, handle } of ourRules(await list('ruleset'))) {
    await tryRun('nft', ['delete', 'rule', family, table, chain, 'handle', String(handle)])
  }
}

async function list(what: 'chains' | 'ruleset'): Promise<string> {
  return run('nft', ['--json', '--handle', 'list', what]).catch(() => '{"nftables": []}')
}

/**
 * Returns the chains that see the packets of pods and may drop them. An accept in one chain has no effect on other
 * chains.
 */
export function filterChains(listing: string): Chain[] {
  return (JSON.parse(listing) as Listing).nftables
    .flatMap(({ chain }) => chain ?? [])
    .filter(({ family, type, hook }) => ['ip', 'inet'].includes(family) && type === 'filter' && `${hook}` in ALLOWED)
}

export function ourRules(listing: string): Rule[] {
  return (JSON.parse(listing) as Listing).nftables
    .flatMap(({ rule }) => rule ?? [])
    .filter(({ comment }) => comment === COMMENT)
}
