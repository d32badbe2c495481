import { type ObservedBy, Pod, reconciler } from '#sdk'
import { podFor } from './pod.ts'
import { At } from './resource.ts'
import { dueTime } from './schedule.ts'

/** Runs a command once, at its time, in a pod: PENDING → RUNNING → DONE, never back. */
export const at = reconciler({
  name: 'at',
  for: At,
  owns: [Pod],
  reconcile({ object: { metadata, spec, status }, owned, now }) {
    const pods = owned(Pod)
    if (status.phase === 'DONE' || pods.some(hasEnded)) return { status: { phase: 'DONE' } }
    if (pods.length > 0) return { status: { phase: 'RUNNING' } }

    const pod = podFor(metadata.name, spec.command)
    if (status.phase === 'RUNNING') return { apply: [pod], status: { phase: 'RUNNING' } }

    const due = dueTime(spec.schedule)
    if (now < due) return { status: { phase: 'PENDING' }, requeueAt: due }
    return { apply: [pod], status: { phase: 'RUNNING' } }
  },
})

/** A pod that fails while it is being deleted was stopped from outside: its command is still to be run. */
function hasEnded({ metadata, status }: ObservedBy<typeof Pod>): boolean {
  if (status?.phase === 'Failed') return metadata.deletionTimestamp === undefined
  return status?.phase === 'Succeeded'
}
