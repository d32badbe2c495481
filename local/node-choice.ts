import { installRequirements, NodeTakenError, nodeRequirements } from './node/index.ts'
import type { Progress } from './progress.ts'

/** `real` or nothing; `auto` takes KWOK where the machine cannot run pods. */
export type WantedNode = 'none' | 'auto' | 'real' | 'kwok'

/** KWOK carries why there is no real node, in words that end a sentence; nothing where it was wanted. */
export type NodeChoice = { kind: 'none' } | { kind: 'real' } | { kind: 'kwok'; missing: string[] }

/** Installs what is missing where it can, so it may take a while and changes the machine, after saying so. */
export async function chooseNode(wanted: WantedNode, progress: Progress): Promise<NodeChoice> {
  if (wanted === 'none') return { kind: 'none' }
  if (wanted === 'kwok') return { kind: 'kwok', missing: [] }
  const missing = await missingAfterInstalling(progress)
  if (missing.length === 0) return { kind: 'real' }
  if (wanted === 'auto') return { kind: 'kwok', missing }
  throw new Error(`a real node cannot run here: this machine lacks ${missing.join(', ')}`)
}

/** A machine has one real node; who wants any takes KWOK while another cluster has it. */
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
