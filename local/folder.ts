import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const MARKER = '.fairlead-cluster'

/**
 * Marks the folder as a cluster's. Throws if it contains other files, since starting a cluster removes its contents.
 */
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

/** Removes the files of an earlier cluster. */
export function clearFolder(dir: string): void {
  for (const name of ['bin', 'etcd', 'nats', 'pki', 'pid', 'log', 'kubeconfig', 'kubectl-cache', 'audit-policy.json']) {
    rmSync(join(dir, name), { recursive: true, force: true })
  }
}
