import { manifest, type Reconciler, toInvoke } from '#sdk'
import type { ReconcilerSpec } from '#spec'

interface Prepared {
  spec: ReconcilerSpec
  invoke: ReturnType<typeof toInvoke>
}

const known = new WeakMap<Reconciler, Prepared>()

/** Prepares a reconciler once, as a dispatcher does: building its schemas takes longer than a decision. */
export function prepared(reconciler: Reconciler): Prepared {
  const before = known.get(reconciler)
  if (before) return before
  const spec = { ...manifest(reconciler).spec, paused: false, dryRun: false }
  const made = { spec, invoke: toInvoke(reconciler) }
  known.set(reconciler, made)
  return made
}
