import type { Reconciler } from 'fairlead'
import { at } from './at/index.ts'
import { etcdBackup } from './etcd/backup/index.ts'
import { etcd } from './etcd/operator/index.ts'
import { etcdRestore } from './etcd/restore/index.ts'
import { memcached } from './memcached/index.ts'
import { visitors } from './visitors/index.ts'

/** The built-in functions, keyed by the name that selects them. None is installed or run unless it is selected. */
export const builtinsByName: Readonly<Record<string, readonly Reconciler[]>> = {
  at: [at],
  etcd: [etcd, etcdBackup, etcdRestore],
  memcached: [memcached],
  visitors: [visitors],
}

export const builtins: readonly Reconciler[] = Object.values(builtinsByName).flat()
