import { resourceName } from '#contracts'
import type { StoredCursor } from '#events'

/** A cursor that no Reconciler asks for, and that no bridge has moved. */
export interface Sighting {
  sequence: number
  /** The time of the first sighting, by a monotonic clock of this process, in milliseconds. */
  since: number
  /** The last sequence of EVENTS at the first sighting. Only objects up to it may be swept. */
  upTo: number
}

export interface Stale {
  cursor: StoredCursor
  upTo: number
}

interface Look {
  cursors: readonly StoredCursor[]
  isWanted: (cursor: StoredCursor) => boolean
  now: number
  /** The last sequence of EVENTS, read before the cursors. */
  end: number
  staleMs: number
}

const cursorName = ({ ref, scope = '' }: Pick<StoredCursor, 'ref' | 'scope'>): string => `${resourceName(ref)} ${scope}`

/**
 * Returns the cursors that can be swept, and the sightings to remember until the next look. A watch moves its cursor
 * every few minutes, so a cursor that stays for `staleMs` has no watch in any bridge of any version. The clocks of two
 * machines are never compared.
 */
export function lookForStale(
  before: ReadonlyMap<string, Sighting>,
  { cursors, isWanted, now, end, staleMs }: Look,
): { sightings: Map<string, Sighting>; stale: Stale[] } {
  const sightings = new Map<string, Sighting>()
  const stale: Stale[] = []
  for (const cursor of cursors) {
    if (isWanted(cursor)) continue
    const { sequence } = cursor
    const known = before.get(cursorName(cursor))
    const sighting = known?.sequence === sequence ? known : { sequence, since: now, upTo: end }
    sightings.set(cursorName(cursor), sighting)
    if (now - sighting.since >= staleMs) stale.push({ cursor, upTo: sighting.upTo })
  }
  return { sightings, stale }
}
