import { resourceName } from '#contracts'
import type { StoredCursor } from '#events'

/** A cursor that no Reconciler asks for and no bridge has moved. */
export interface Sighting {
  sequence: number
  /** By a clock of this process that never goes back, in milliseconds. */
  since: number
  /** The last sequence of EVENTS when it was seen first: only what is not above it may be swept. */
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
 * The cursors that can be swept, and what to remember until the next look. A watch moves its cursor every few minutes, so
 * one that stays for `staleMs` has no watch in any bridge, of any version. No clocks of two machines are compared.
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
