import { at } from '#functions/at'
import { etcd } from '#functions/etcd'
import { etcdBackup } from '#functions/etcd-backup'
import { etcdRestore } from '#functions/etcd-restore'
import { memcached } from '#functions/memcached'
import { visitors } from '#functions/visitors'
import type { Reconciler } from '#sdk'

/** The built-in functions, which every dispatcher runs in its process. */
export const builtins: readonly Reconciler[] = [at, etcd, etcdBackup, etcdRestore, memcached, visitors]
