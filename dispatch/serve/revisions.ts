import type { Revision } from '#spec'

/** Longer than most roll-outs take. */
const ROLL_OUT_MS = 600_000
/** The time over which the repeated runs are spread. */
const SPREAD_MS = 60_000
/** The number of recorded revisions: more than are active at the same time. */
const KEPT = 10

/**
 * Returns the record after an answer of this revision. Undefined if the record has the revision. The order of the first
 * answers stays.
 */
export function recorded(known: readonly Revision[], name: string, now: Date): Revision[] | undefined {
  if (known.some((revision) => revision.name === name)) return undefined
  return [...known, { name, at: now.toISOString() }].slice(-KEPT)
}

/**
 * Returns the time at which an object runs again because an older revision has run it during the roll-out of a newer
 * one: the end of the roll-out. After that, a run of an older revision is not repeated, so that two revisions that stay
 * active do not run every object without end.
 */
export function repeatedAt(
  known: readonly Revision[],
  name: string,
  { now, random }: { now: Date; random: () => number },
): Date | undefined {
  const newest = known.at(-1)
  if (newest === undefined || newest.name === name || !known.some((revision) => revision.name === name))
    return undefined
  const end = Date.parse(newest.at) + ROLL_OUT_MS
  return now.getTime() < end ? new Date(end + random() * SPREAD_MS) : undefined
}
