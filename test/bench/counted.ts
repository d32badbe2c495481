import { appendFileSync } from 'node:fs'
import { at as plainAt } from '#functions/at'
import type { Reconciler } from '#sdk'
import { memcached as plainMemcached } from './memcached.ts'

/** Each call of a function adds a byte to the file that BENCH_CALLS names, in whatever thread or process it runs. */
const CALLS = process.env['BENCH_CALLS'] ?? '/dev/null'

const counted = (one: Reconciler): Reconciler => ({
  ...one,
  reconcile(run) {
    appendFileSync(CALLS, '.')
    return one.reconcile(run)
  },
})

export const at = counted(plainAt)
export const memcached = counted(plainMemcached)
