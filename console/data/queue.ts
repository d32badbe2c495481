import { type ExistingStreams, orphansIn, type Row, toRow, withOrphan } from '#inspect'

/** Keys that are read. The page states when there are more. */
const MOST = 20_000
/** Keys of Reconcilers that are gone, whose objects are looked up. */
const ORPHANS = 50

export interface QueueSnapshot {
  rows: readonly Row[]
  /** There are more. */
  isCut: boolean
}

/** Every key that is queued, running, waiting or parked. */
export async function readQueue({ queue, view }: ExistingStreams): Promise<QueueSnapshot> {
  const rows: Row[] = []
  for await (const entry of queue.list({ limit: MOST + 1 })) rows.push(toRow(entry))
  const orphans = orphansIn(view)
  let looked = 0
  for (const [index, row] of rows.entries()) {
    if (!(await orphans.isGone(row.reconciler)) || looked++ >= ORPHANS) continue
    rows[index] = await withOrphan(row, orphans)
  }
  return { rows: rows.slice(0, MOST), isCut: rows.length > MOST }
}
