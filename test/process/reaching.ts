import { reconciler } from '#sdk'
import { Naughty } from './naughty.ts'

/** Reports the process in which its external system is read and changed. */
export const reaching = reconciler({
  name: 'reaching',
  for: Naughty,
  external: { read: () => process.pid, perform: ({ kind }: { kind: 'add' }) => [kind, process.pid] },
  reconcile: ({ external }) => ({ status: { phase: `${external}` } }),
})
