import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const MARKER = '.fairlead-cluster'

/** Makes the folder a cluster's, or throws where it holds anything else: starting a cluster removes what is in its way. */
export function takeFolder(dir: string): void {
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const foreign = readdirSync(dir).filter((entry) => !entry.startsWith('.lock'))
  if (foreign.length > 0 && !existsSync(join(dir, MARKER))) {
    throw new Error(
      `${dir} holds files of others (${foreign[0]}), so no cluster is started there: name an empty folder`,
    )
  }
  writeFileSync(join(dir, MARKER), '')
}

/** What an earlier cluster left. */
export function clearFolder(dir: string): void {
  for (const name of ['bin', 'etcd', 'nats', 'pki', 'pid', 'log', 'kubeconfig', 'kubectl-cache', 'audit-policy.json']) {
    rmSync(join(dir, name), { recursive: true, force: true })
  }
}
