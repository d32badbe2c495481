import { namespacedName } from '#contracts'
import { isKey, parseKey } from '#events'
import { duration, oneLine } from '#host/exit'
import type { Entry } from '#queue'

/** One key in one state, in the form for scripts. */
export interface Row {
  reconciler: string
  namespace?: string
  name: string
  state: Entry['state']
  lane: Entry['lane']
  since: string
  attempt: number
  /** queued: the position in its lane, from 1. */
  position?: number
  /** queued: the position among the keys of its namespace in its lane, from 1. */
  positionInNamespace?: number
  /** waiting: the time at which the timer fires. running: the end of the lease. */
  until?: string
  reason?: string
  error?: string
  /** running: the name of the process. */
  by?: string
  /** running: the id of this run. */
  owner?: string
  /** running: the object has changed since the run began, so the key runs once more. */
  dirty?: boolean
  /** Its Reconciler does not exist. */
  orphaned?: true
  /** orphaned: the finalizer that blocks the deletion of its object. */
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

/** A key in an unknown format is shown unchanged. */
function nameOf(key: string): Pick<Row, 'namespace' | 'name'> {
  if (!isKey(key)) return { name: key }
  const { namespace, name } = parseKey(key)
  return { ...(namespace !== undefined && { namespace }), name }
}

export const called = ({ reconciler, namespace, name }: Pick<Row, 'reconciler' | 'namespace' | 'name'>): string =>
  `${reconciler} ${namespacedName({ namespace, name })}`

/** Returns an empty text if all keys before it are of its namespace. */
export const placeInNamespace = ({ position, positionInNamespace }: Row): string =>
  positionInNamespace === position ? '' : `, ${positionInNamespace} of its namespace`

/** Describes the state of the key. */
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
