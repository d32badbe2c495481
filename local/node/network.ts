import { readFile, writeFile } from 'node:fs/promises'
import { NETWORK_CIDR, NODE_IP, NODE_LINK, POD_CIDR, SERVICE_CIDR } from './addresses.ts'
import { run, tryRun } from './command.ts'
import { closeFirewalls, openFirewalls } from './firewall.ts'

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
