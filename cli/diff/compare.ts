import { type KubeObject, namespacedName } from '#contracts'
import type { DryRunResult, DryRunStep } from '#dispatch'
import { differences } from '#reconcile'
import type { Reconciler } from '#sdk'
import { type Change, messageShape } from './shapes.ts'

/** The changes that a dry run of one object shows. The last state of each written object counts. */
export function changesIn({ metadata, kind }: KubeObject, { would, finish }: DryRunResult): Change[] {
  const written = new Map<string, Change>()
  const others: Change[] = []
  for (const step of would) {
    if (step.would === 'tell') continue
    if (step.would === 'perform')
      others.push({ what: 'perform', kind: effectKind(step), object: namespacedName(metadata), differences: [] })
    else {
      const object = namespacedName(step)
      const found = step.would === 'change' ? step.differences : []
      written.set(`${step.kind} ${object}`, { what: step.would, kind: step.kind, object, differences: found })
    }
  }
  if (finish.kind === 'error' || finish.kind === 'terminal') {
    const message = messageShape(finish.message, metadata)
    others.push({ what: 'fail', kind, object: namespacedName(metadata), differences: [], message })
  }
  return [...written.values(), ...others]
}

function effectKind({ effect }: DryRunStep & { would: 'perform' }): string {
  try {
    return (JSON.parse(effect) as { kind: string }).kind
  } catch {
    return effect
  }
}

/** What the schema of the function does to a stored object: fields that it does not have, and defaults that it adds. */
export function schemaChanges({ for: kind }: Pick<Reconciler, 'for'>, object: KubeObject): Change[] {
  const about = { kind: object.kind, object: namespacedName(object.metadata) }
  let parsed: { spec?: unknown }
  try {
    parsed = kind.parse(object) as { spec?: unknown }
  } catch (error) {
    const message = messageShape(error instanceof Error ? error.message : String(error), object.metadata)
    return [{ what: 'refuse', ...about, differences: [], message }]
  }
  const found = differences({ spec: object.spec ?? {} }, { spec: parsed.spec })
  const pruned = found.filter((one) => !('after' in one))
  const added = found.filter((one) => 'after' in one)
  return [
    ...(pruned.length > 0 ? [{ what: 'prune' as const, ...about, differences: pruned }] : []),
    ...(added.length > 0 ? [{ what: 'default' as const, ...about, differences: added }] : []),
  ]
}
