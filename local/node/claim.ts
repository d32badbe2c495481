import { readFile, rm, writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import type { Identity } from '../identity.ts'
import { withLock } from '../lock.ts'
import type { KernelSettings } from './network.ts'

/**
 * A machine has one node: its link, its tables of packet rules and its kernel settings are the machine's. Who has it is
 * written here, before the first of them is made and until the last of them is gone.
 */
const CLAIM_FILE = '/run/fairlead-node.json'

const LOCK_FILE = '/run/fairlead-node.lock'

export interface Claim {
  /** The cluster's folder. */
  dir: string
  startedBy: Identity
  /** The node is of no use to anybody when `startedBy` has ended. */
  ephemeral: boolean
  /** As they were before. */
  settings: KernelSettings
}

/**
 * Taking the machine's node and giving it back are done by one process at a time: who gives it back late, for a process
 * that was killed, must not take away what the next one has just made.
 */
export async function withMachine<T>(work: () => Promise<T>): Promise<T> {
  return withLock(LOCK_FILE, () => {}, work)
}

export async function readClaim(): Promise<Claim | undefined> {
  const text = await readFile(CLAIM_FILE, 'utf8').catch(() => undefined)
  return text === undefined ? undefined : (JSON.parse(text) as Claim)
}

export async function writeClaim(claim: Claim): Promise<void> {
  await writeFile(CLAIM_FILE, JSON.stringify({ ...claim, dir: resolve(claim.dir) }))
}

export async function dropClaim(): Promise<void> {
  await rm(CLAIM_FILE, { force: true })
}

/**
 * Whether somebody still needs the node of this claim. One that was started to stay is needed as long as it works, one
 * that was started for a process as long as that process runs.
 */
export function isInUse(claim: Claim, seen: { starterRuns: boolean; nodeWorks: boolean }): boolean {
  return seen.starterRuns || (seen.nodeWorks && !claim.ephemeral)
}

export class NodeTakenError extends Error {
  override name = 'NodeTakenError'
  readonly dir: string

  constructor(dir: string) {
    super(`A machine has one node, and the cluster in ${dir} has it: stop that cluster first`)
    this.dir = dir
  }
}
