import type { Revision } from '#spec'

/** Longer than most roll-outs take. */
const ROLL_OUT_MS = 600_000
/** What is repeated does not come in one instant. */
const SPREAD_MS = 60_000
/** More than run at once. */
const KEPT = 10

/** The record after an answer of this revision; undefined: it has that one. The order of the first answers stays. */
export function recorded(known: readonly Revision[], name: string, now: Date): Revision[] | undefined {
  if (known.some((revision) => revision.name === name)) return undefined
  return [...known, { name, at: now.toISOString() }].slice(-KEPT)
}

/**
 * When an object runs again that an older revision has run while a newer one was rolled out: when that is over. A run of an
 * older one after that is not repeated, so that two that stay side by side do not run everything without end.
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
