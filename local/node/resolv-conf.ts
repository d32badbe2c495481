import { readFile, writeFile } from 'node:fs/promises'
import type { NodePaths } from './paths.ts'

/** The name servers that pods, and CoreDNS for names outside of the cluster, ask. */
export function resolvConf(paths: NodePaths): string {
  return `${paths.run}/resolv.conf`
}

export async function writeResolvConf(paths: NodePaths): Promise<void> {
  await writeFile(resolvConf(paths), nameServers(await systemResolvConf()))
}

/** systemd-resolved's own address is the machine's loopback, which a pod has not: its upstream file is taken instead. */
async function systemResolvConf(): Promise<string> {
  const system = await readFile('/etc/resolv.conf', 'utf8').catch(() => '')
  const stub = /^nameserver\s+127\.0\.0\.53/m.test(system)
  return stub ? readFile('/run/systemd/resolve/resolv.conf', 'utf8').catch(() => system) : system
}

/** Only these lines: search domains of the machine would make each name of the cluster cost several questions. */
export function nameServers(resolvConf: string): string {
  return resolvConf
    .split('\n')
    .filter((line) => /^nameserver\s/.test(line))
    .map((line) => `${line}\n`)
    .join('')
}
