import { readFile, writeFile } from 'node:fs/promises'
import type { NodePaths } from './paths.ts'

/** Returns the file with the name servers for pods, and for names outside of the cluster in CoreDNS. */
export function resolvConf(paths: NodePaths): string {
  return `${paths.run}/resolv.conf`
}

export async function writeResolvConf(paths: NodePaths): Promise<void> {
  await writeFile(resolvConf(paths), nameServers(await systemResolvConf()))
}

/**
 * Reads systemd-resolved's upstream file if the machine uses it: its own address is on the loopback, which pods cannot
 * reach.
 */
async function systemResolvConf(): Promise<string> {
  const system = await readFile('/etc/resolv.conf', 'utf8').catch(() => '')
  const stub = /^nameserver\s+127\.0\.0\.53/m.test(system)
  return stub ? readFile('/run/systemd/resolve/resolv.conf', 'utf8').catch(() => system) : system
}

/**
 * Returns only the `nameserver` lines: the machine's search domains would cause several queries for each name of the
 * cluster.
 */
export function nameServers(resolvConf: string): string {
  return resolvConf
    .split('\n')
    .filter((line) => /^nameserver\s/.test(line))
    .map((line) => `${line}\n`)
    .join('')
}
