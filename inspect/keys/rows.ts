import { isKey, parseKey } from '#events'
import { duration, oneLine } from '#host/exit'
import type { Entry } from '#queue'

/** One key in one state, as scripts get it. */
export interface Row {
  reconciler: string
  namespace?: string
  name: string
  state: Entry['state']
  lane: Entry['lane']
  since: string
  attempt: number
  /** queued: 1 is the next one of its lane. */
  position?: number
  /** queued: 1 is the next one of its namespace in its lane. */
  positionInNamespace?: number
  /** waiting: when the timer fires. running: end of the lease. */
  until?: string
  reason?: string
  error?: string
  /** running: the process. */
  by?: string
  /** running: this run. */
  owner?: string
  /** running: something has changed since it began, so it runs once more. */
  dirty?: boolean
  /** Its Reconciler does not exist. */
  orphaned?: true
  /** orphaned: what its object, which is being deleted, waits for. */
  finalizer?: string
}

export function toRow(entry: Entry): Row {
  const until = entry.state === 'waiting' ? entry.until : entry.state === 'running' ? entry.leaseUntil : undefined
  return {
    reconciler: entry.reconciler,
    ...nameOf(entry.key),
    state: entry.state,
    lane: entry.lane,
    since: entry.since.toISOString(),
    attempt: entry.attempt,
    ...(entry.state === 'queued' && {
      position: entry.position,
      positionInNamespace: entry.positionInNamespace,
    }),
    ...(until && { until: until.toISOString() }),
    ...('reason' in entry && { reason: entry.reason }),
    ...(entry.error !== undefined && { error: entry.error }),
    ...(entry.state === 'running' && { owner: entry.owner, dirty: entry.dirty }),
    ...(entry.state === 'running' && entry.by !== undefined && { by: entry.by }),
  }
}

/** A key that is none of ours is shown as it is. */
function nameOf(key: string): Pick<Row, 'namespace' | 'name'> {
  if (!isKey(key)) return { name: key }
  const { namespace, name } = parseKey(key)
  return { ...(namespace !== undefined && { namespace }), name }
}

export const called = ({ reconciler, namespace, name }: Pick<Row, 'reconciler' | 'namespace' | 'name'>): string =>
  `${reconciler} ${namespace === undefined ? '' : `${namespace}/`}${name}`

/** Empty where all keys before it are of its namespace. */
export const placeInNamespace = ({ position, positionInNamespace }: Row): string =>
  positionInNamespace === position ? '' : `, ${positionInNamespace} of its namespace`

/** What the state means for this key, in words. */
export function detail(row: Row, now: Date, errorChars: number): string {
  const left = row.until === undefined ? '' : duration(Date.parse(row.until) - now.getTime())
  const why = row.error === undefined ? '' : `: ${oneLine(row.error, errorChars)}`
  const { reconciler, orphaned, finalizer } = row
  if (orphaned)
    return `Reconciler ${reconciler} does not exist${finalizer === undefined ? why : `; the object waits for ${finalizer}`}`
  switch (row.state) {
    case 'queued':
      return `${row.lane} lane, place ${row.position}${placeInNamespace(row)}${why}`
    case 'running':
      return `by ${row.by ?? row.owner}, lease ${left}${row.dirty ? ', changed meanwhile' : ''}`
    case 'waiting':
      return row.reason === 'Error' ? `retry in ${left}${why}` : `timer in ${left}`
    case 'parked':
      return row.reason === 'Withdrawn' ? `by hand${why}` : `until something changes${why}`
  }
}
