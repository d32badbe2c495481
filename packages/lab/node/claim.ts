import { readFile, rm, writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import type { Identity } from '../lock.ts'
import { withLock } from '../lock.ts'
import type { KernelSettings } from './network.ts'

/**
 * The file that records which cluster has the machine's only node: link, packet rules and kernel settings belong to the
 * whole machine. It is written before the first of them is changed, and removed after the last one is restored.
 */
const CLAIM_FILE = '/run/fairlead-node.json'

const LOCK_FILE = '/run/fairlead-node.lock'

export interface Claim {
  /** The cluster's folder. */
  dir: string
  startedBy: Identity
  /** The node is unused after the process `startedBy` has ended. */
  ephemeral: boolean
  /** The kernel settings before the node was started. */
  settings: KernelSettings
}

/**
 * Runs `work` while no other process starts or removes the machine's node. Without it, a late removal for a killed
 * process could remove the next node.
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
 * Whether a node with this claim is still in use. A node that was started to remain is in use while it works; a node
 * that was started for a process, while that process runs.
 */
export function isInUse(claim: Claim, seen: { starterRuns: boolean; nodeWorks: boolean }): boolean {
  return seen.starterRuns || (seen.nodeWorks && !claim.ephemeral)
}

/** This machine cannot run a real node now. */
export class NoNodeError extends Error {
  override name = 'NoNodeError'
}

export class NodeTakenError extends NoNodeError {
  override name = 'NodeTakenError'
  readonly dir: string

  constructor(dir: string) {
    super(`A machine has one node, and the cluster in ${dir} has it: stop that cluster first`)
    this.dir = dir
  }
}
