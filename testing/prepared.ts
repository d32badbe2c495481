import { manifest, type Reconciler, toInvoke } from '#sdk'
import type { ReconcilerSpec } from '#spec'

interface Prepared {
  spec: ReconcilerSpec
  invoke: ReturnType<typeof toInvoke>
}

const known = new WeakMap<Reconciler, Prepared>()

/** What is made of a reconciler once, as in a dispatcher: its schemas take longer to build than a decision takes. */
export function prepared(reconciler: Reconciler): Prepared {
  const before = known.get(reconciler)
  if (before) return before
  const spec = { ...manifest(reconciler).spec, paused: false, dryRun: false }
  const made = { spec, invoke: toInvoke(reconciler) }
  known.set(reconciler, made)
  return made
}
