import { installRequirements, NodeTakenError, NoNodeError, nodeRequirements } from './node/index.ts'
import type { Progress } from './progress.ts'

/** `real` requires a real node; `auto` uses KWOK if the machine cannot run pods. */
export type WantedNode = 'none' | 'auto' | 'real' | 'kwok'

/**
 * For KWOK, `missing` contains the reasons why there is no real node, as texts that end a sentence; empty if the user
 * has chosen KWOK.
 */
export type NodeChoice = { kind: 'none' } | { kind: 'real' } | { kind: 'kwok'; missing: string[] }

/**
 * Chooses the node. It may install missing packages, which changes the machine and takes time; it prints a line before.
 * Throws a NoNodeError if a `real` one cannot run.
 */
export async function chooseNode(wanted: WantedNode, progress: Progress): Promise<NodeChoice> {
  if (wanted === 'none') return { kind: 'none' }
  if (wanted === 'kwok') return { kind: 'kwok', missing: [] }
  const missing = await missingAfterInstalling(progress)
  if (missing.length === 0) return { kind: 'real' }
  if (wanted === 'auto') return { kind: 'kwok', missing }
  throw new NoNodeError(`a real node cannot run here: this machine lacks ${missing.join(', ')}`)
}

/** With `auto`, returns KWOK while another cluster has the machine's only real node. Throws the error otherwise. */
export function choiceAfter(error: unknown, wanted: WantedNode): NodeChoice {
  if (wanted !== 'auto' || !(error instanceof NodeTakenError)) throw error
  return { kind: 'kwok', missing: [`a second node (the cluster in ${error.dir} has the one there is)`] }
}

async function missingAfterInstalling(progress: Progress): Promise<string[]> {
  const before = await nodeRequirements()
  if (before.ok) return []
  if (!before.installable) return before.missing
  try {
    await installRequirements(before.missing, progress)
  } catch (error) {
    progress.line(`that failed: ${error instanceof Error ? error.message : String(error)}`)
  }
  const after = await nodeRequirements()
  return after.ok ? [] : after.missing
}
