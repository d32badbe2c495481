import type { WorkQueue } from '#queue'
import { type Format, type Row, rowTable } from './rows.ts'
import { demandReconciler, type Filter, selectRows } from './select.ts'

export interface LsOptions extends Filter {
  output: Format
  limit: number
}

/** One line per key that is queued, running, waiting or parked; idle keys leave nothing behind. */
export async function listQueue(queue: WorkQueue, options: LsOptions, now: () => Date): Promise<string> {
  const { reconciler, output, limit } = options
  if (reconciler !== undefined) await demandReconciler(queue, reconciler)
  const { rows, more } = await firstRows(queue, options, limit)
  if (output === 'json') return JSON.stringify(rows, null, 2)
  if (rows.length === 0) return NOTHING
  return rowTable(rows, now(), output) + (more ? `\n… and more: --limit is ${limit}` : '')
}

export const NOTHING = 'Nothing is queued, running, waiting or parked.'

export async function firstRows(
  queue: WorkQueue,
  filter: Filter,
  limit: number,
): Promise<{ rows: Row[]; more: boolean }> {
  const rows: Row[] = []
  for await (const row of selectRows(queue, filter)) {
    if (rows.length === limit) return { rows, more: true }
    rows.push(row)
  }
  return { rows, more: false }
}
