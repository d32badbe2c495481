import { type ExistingStreams, orphansIn, type Row, toRow } from '#inspect'
import { BoundedMap } from '#primitives'

/** Snapshots that are kept. */
const READ = 8
/** Keys that are read. The page states when there are more. */
const MOST = 20_000

export interface QueueSnapshot {
  rows: readonly Row[]
  /** There are more. */
  isCut: boolean
}

/** Reads every key that is queued, running, waiting or parked, of one reconciler or of all. */
async function readQueue({ queue, view }: ExistingStreams, reconciler: string | undefined): Promise<QueueSnapshot> {
  const rows: Row[] = []
  const which = reconciler === undefined ? {} : { reconciler }
  for await (const entry of queue.list({ ...which, limit: MOST + 1 })) rows.push(toRow(entry))
  const orphans = orphansIn(view)
  for (const [name, own] of Map.groupBy(rows, (row) => row.reconciler))
    if (await orphans.isGone(name)) for (const row of own) row.orphaned = true
  return { rows: rows.slice(0, MOST), isCut: rows.length > MOST }
}

/** Reads the queue again only after WORK has changed: while nothing happens, a look costs one small request. */
export function queueReader(): (streams: ExistingStreams, reconciler: string | undefined) => Promise<QueueSnapshot> {
  const read = new BoundedMap<string, { mark: string; snapshot: QueueSnapshot }>(READ)
  return async (streams, reconciler) => {
    const { state } = await streams.js.admin.streams.info(streams.queue.stream)
    const mark = JSON.stringify([state.first_seq, state.last_seq, state.messages])
    const known = read.get(reconciler ?? '')
    if (known?.mark === mark) return known.snapshot
    const snapshot = await readQueue(streams, reconciler)
    read.set(reconciler ?? '', { mark, snapshot })
    return snapshot
  }
}
