/** The compiler checks that the list has every key of the type. */
export const keysOf = <T>(keys: Record<keyof T, true>): readonly string[] => Object.keys(keys)

/**
 * Throws an Error for an unknown option, and suggests the most similar known one. Without it, a misspelled option would
 * have no effect.
 */
export function refuseUnknown(given: object, known: readonly string[], whose: string): void {
  const unknown = Object.keys(given).find((name) => !known.includes(name))
  if (unknown === undefined) return
  const [nearest = ''] = known.toSorted((one, other) => distance(unknown, one) - distance(unknown, other))
  const isNear = distance(unknown, nearest) <= Math.max(2, unknown.length / 3)
  throw new Error(
    `${whose} has an unknown option "${unknown}": ${isNear ? `did you mean "${nearest}"?` : `it takes ${known.join(', ')}`}`,
  )
}

/** The Levenshtein distance: the number of characters to insert, delete or replace. */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (const [above, letter] of from.split('').entries()) {
    const next = [above + 1]
    for (const [index, other] of to.split('').entries())
      next.push(
        Math.min((row[index] ?? 0) + (letter === other ? 0 : 1), (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1),
      )
    row = next
  }
  return row[to.length] ?? 0
}
