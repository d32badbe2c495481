import { NODE_IP, POD_CIDR } from './addresses.ts'
import { run, tryRun } from './command.ts'

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
export async function openFirewalls(): Promise<void> {
  for (const { family, table, name, hook } of filterChains(await list('chains'))) {
    for (const match of ALLOWED[hook ?? ''] ?? []) {
      await tryRun('nft', ['insert', 'rule', family, table, name, ...match, 'accept', 'comment', `"${COMMENT}"`])
    }
  }
}

export async function closeFirewalls(): Promise<void> {
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
