import { NODE_IP, POD_CIDR } from './addresses.ts'
import { run, tryRun } from './command.ts'

/** How nft calls the part of its JSON that matters here. */
interface Listing {
  nftables: { chain?: Chain; rule?: Rule }[]
}

interface Chain {
  family: string
  table: string
  name: string
  /** Chains without one are only jumped to. */
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

/** On each of our rules in others' chains. */
const COMMENT = 'fairlead-node'

/** What a firewall of the machine (Docker's, ufw's, firewalld's) must let through for pods to reach each other. */
const ALLOWED: Record<string, string[][]> = {
  forward: [
    ['ip', 'saddr', POD_CIDR],
    ['ip', 'daddr', POD_CIDR],
  ],
  input: [['ip', 'saddr', POD_CIDR, 'ip', 'daddr', NODE_IP]],
}

/**
 * To be called before our own tables exist. What was let through stays so until closeFirewalls(). An nft without JSON
 * does not say what there is: then nothing is opened, and pods may not reach each other.
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

/** Chains that see the packets of pods and may drop them: accepting there decides for that chain alone. */
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
