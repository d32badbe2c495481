import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import type { EventStore, StoredCursor } from '#events'
import { repeat } from '#primitives'

export interface SweeperDeps {
  events: Pick<EventStore, 'cursors' | 'moveCursor' | 'removeCursor' | 'end' | 'sweep'>
  log: RunLog
  now: () => Date
  /** Whether a Reconciler asks for the scope of a cursor. Undefined: the Reconcilers are not known yet. */
  isWanted: () => ((ref: ResourceRef, scope: string | undefined) => boolean) | undefined
  /** Unused data is swept after this time. Left out: an hour, the time for which deletions are kept. */
  staleMs?: number
  everyMs?: number
}

const STALE_MS = 3_600_000
const EVERY_MS = 60_000

/**
 * Deletes objects from EVENTS that no Reconciler asks for. The cursor is set to unlisted first, by compare-and-set. A
 * watch that begins at this moment, in any bridge, finds no valid cursor and stores every object again. A watch that was
 * open all the time cannot move its cursor and lists again (docs/decisions/0044-sweeping-unused-data.md).
 */
export class Sweeper {
  readonly #deps: SweeperDeps
  #sightings: ReadonlyMap<string, Sighting> = new Map()

  constructor(deps: SweeperDeps) {
    this.#deps = deps
  }

  async run(signal: AbortSignal): Promise<void> {
    const { log, everyMs = EVERY_MS } = this.#deps
    const failed = (error: unknown) =>
      log.warn({ err: error }, 'EVENTS could not be swept; the next try is in a minute')
    await repeat(() => this.#look(signal), { signal, everyMs, failed })
  }

  async #look(signal: AbortSignal): Promise<void> {
    const { events, staleMs = STALE_MS, isWanted } = this.#deps
    const wanted = isWanted()
    if (wanted === undefined) return
    const end = await events.end()
    const cursors = await Array.fromAsync(events.cursors())
    const { sightings, stale } = lookForStale(this.#sightings, {
      cursors,
      isWanted: ({ ref, scope }) => wanted(ref, scope),
      now: performance.now(),
      end,
      staleMs,
    })
    this.#sightings = sightings
    const others = cursors.filter((cursor) => !stale.some((one) => one.cursor === cursor))
    for (const one of stale) await this.#sweep(one, others, signal)
  }

  async #sweep({ cursor, upTo }: Stale, others: readonly StoredCursor[], signal: AbortSignal): Promise<void> {
    const { events, log, now } = this.#deps
    const { ref, scope } = cursor
    const moved = await unlist(events, cursor, now)
    if (moved === undefined) return
    const objects = await events.sweep(ref, scope, { upTo, signal, keeps: this.#keepsFor(ref, others) })
    await events.removeCursor(moved)
    log.info({ resource: resourceName(ref), namespace: scope, objects }, 'swept: no Reconciler asks for this any more')
  }

  /** Returns which objects to keep: another cursor of the resource covers them, or a Reconciler asks for them again. */
  #keepsFor(ref: ResourceRef, others: readonly StoredCursor[]): (namespace: string | undefined) => boolean {
    const scopes = new Set(
      others.filter((other) => resourceName(other.ref) === resourceName(ref)).map(({ scope }) => scope),
    )
    return (namespace) => {
      const isWanted = this.#deps.isWanted()
      const asked =
        isWanted === undefined || isWanted(ref, undefined) || (namespace !== undefined && isWanted(ref, namespace))
      return asked || scopes.has(undefined) || scopes.has(namespace)
    }
  }
}

/** Sets a cursor to unlisted. Resolves with undefined if a bridge has moved it. */
function unlist(
  events: Pick<EventStore, 'moveCursor'>,
  { ref, scope, sequence }: StoredCursor,
  now: () => Date,
): Promise<number | undefined> {
  const unlisted = { resourceVersion: '0', covers: [], unlisted: true, at: now().toISOString() }
  return events.moveCursor(ref, scope, unlisted, sequence)
}

/** Sets the cursors of all watches to unlisted, whatever other bridges do meanwhile. `isRecord`: it is of no watch. */
export async function unlistAll(
  events: Pick<EventStore, 'cursors' | 'lastCursor' | 'moveCursor'>,
  { isRecord, now }: { isRecord: (cursor: StoredCursor) => boolean; now: () => Date },
): Promise<void> {
  for (const cursor of await Array.fromAsync(events.cursors())) {
    let last: StoredCursor | undefined = cursor
    while (last !== undefined && !last.unlisted && !isRecord(last))
      last = (await unlist(events, last, now)) === undefined ? await events.lastCursor(last.ref, last.scope) : undefined
  }
}

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
