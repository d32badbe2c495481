import { at } from '#functions/at'
import { etcd } from '#functions/etcd'
import { etcdBackup } from '#functions/etcd/backup'
import { etcdRestore } from '#functions/etcd/restore'
import { memcached } from '#functions/memcached'
import { visitors } from '#functions/visitors'
import type { Reconciler } from '#sdk'

/** The built-in functions, keyed by the name that selects them. None is installed or run unless it is selected. */
export const builtinsByName: Readonly<Record<string, readonly Reconciler[]>> = {
  at: [at],
  etcd: [etcd, etcdBackup, etcdRestore],
  memcached: [memcached],
  visitors: [visitors],
}

export const builtins: readonly Reconciler[] = Object.values(builtinsByName).flat()
