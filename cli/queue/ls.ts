import {
  demandReconciler,
  type Filter,
  orphansIn,
  type QueueView,
  type Row,
  selectRows,
  withOrphan,
} from '#inspect/keys'
import { mapAtMost } from '#primitives'
import { type Format, rowTable } from './rows.ts'

export interface LsOptions extends Filter {
  output: Format
  limit: number
}

/** Prints one line per key that is queued, running, waiting or parked; idle keys are not stored. */
export async function listQueue(view: QueueView, options: LsOptions, now: () => Date): Promise<string> {
  const { reconciler, output, limit } = options
  if (reconciler !== undefined) await demandReconciler(view.queue, reconciler)
  const { rows, more } = await firstRows(view, options, limit)
  if (output === 'json') return JSON.stringify(rows, null, 2)
  if (rows.length === 0) return NOTHING
  return rowTable(rows, now(), output) + (more ? `\n… and more: --limit is ${limit}` : '')
}

export const NOTHING = 'Nothing is queued, running, waiting or parked.'

export async function firstRows(
  { queue, events }: QueueView,
  filter: Filter,
  limit: number,
): Promise<{ rows: Row[]; more: boolean }> {
  const orphans = orphansIn(events)
  const found: Row[] = []
  for await (const row of selectRows(queue, filter)) if (found.push(row) > limit) break
  const rows = await mapAtMost(AT_ONCE, found.slice(0, limit), (row) => withOrphan(row, orphans))
  return { rows, more: found.length > limit }
}

const AT_ONCE = 16
