import { parseKey } from '#events'
import type { WorkQueue } from '#queue'
import { duration, table } from '../table.ts'

type Entry = ReturnType<WorkQueue['list']> extends AsyncGenerator<infer E> ? E : never

export interface QueueLsOptions {
  reconciler?: string
  namespace?: string
  output: 'table' | 'json'
  limit: number
}

/** One line per key that is queued, running, waiting or parked; idle keys leave nothing behind. */
export async function queueLs(queue: WorkQueue, options: QueueLsOptions, now: Date): Promise<string> {
  const { reconciler, namespace, output, limit } = options
  const rows: Row[] = []
  const entries = queue.list({ limit, ...(reconciler !== undefined && { fn: reconciler }) })
  for await (const entry of entries) {
    const row = toRow(entry)
    if (namespace === undefined || row.namespace === namespace) rows.push(row)
  }
  if (output === 'json') return JSON.stringify(rows, null, 2)
  if (rows.length === 0) return 'Nothing is queued, running, waiting or parked.'
  return table(
    ['RECONCILER', 'NAMESPACE', 'NAME', 'STATE', 'SINCE', 'ATTEMPT', 'DETAIL'],
    rows.map((row) => [
      row.reconciler,
      row.namespace ?? '-',
      row.name,
      row.state,
      duration(now.getTime() - new Date(row.since).getTime()),
      String(row.attempt),
      detail(row, now),
    ]),
  )
}

interface Row {
  reconciler: string
  namespace?: string
  name: string
  state: Entry['state']
  lane: Entry['lane']
  since: string
  attempt: number
  /** waiting: when the timer fires. running: end of the lease. */
  until?: string
  reason?: string
  error?: string
  owner?: string
}

function toRow(entry: Entry): Row {
  const { namespace, name } = parseKey(entry.key)
  const until = entry.state === 'waiting' ? entry.until : entry.state === 'running' ? entry.leaseUntil : undefined
  return {
    reconciler: entry.fn,
    ...(namespace !== undefined && { namespace }),
    name,
    state: entry.state,
    lane: entry.lane,
    since: entry.since.toISOString(),
    attempt: entry.attempt,
    ...(until && { until: until.toISOString() }),
    ...('reason' in entry && { reason: entry.reason }),
    ...(entry.error !== undefined && { error: entry.error }),
    ...(entry.state === 'running' && { owner: entry.owner }),
  }
}

function detail({ state, lane, until, reason, error, owner }: Row, now: Date): string {
  const left = until === undefined ? '' : duration(new Date(until).getTime() - now.getTime())
  const why = error === undefined ? '' : `: ${error}`
  if (state === 'queued') return `${lane} lane${why}`
  if (state === 'running') return `by ${owner}, lease ${left}`
  return state === 'waiting' ? `${reason} in ${left}${why}` : `until something changes${why}`
}
