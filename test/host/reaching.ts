import { reconciler } from '#sdk'
import { Naughty } from './naughty.ts'

/** Says in which process its external system is read and changed. */
export const reaching = reconciler({
  name: 'reaching',
  for: Naughty,
  external: { read: () => process.pid, perform: ({ kind }: { kind: 'add' }) => [kind, process.pid] },
  reconcile: ({ external }) => ({ status: { phase: `${external}` } }),
})
