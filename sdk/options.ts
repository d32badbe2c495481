/** The compiler holds the list to the type that it is of. */
export const keysOf = <T>(keys: Record<keyof T, true>): readonly string[] => Object.keys(keys)

/** Throws for an option that nobody knows, and names the one that was probably meant: unread, it would be missed. */
export function refuseUnknown(given: object, known: readonly string[], whose: string): void {
  const unknown = Object.keys(given).find((name) => !known.includes(name))
  if (unknown === undefined) return
  const [nearest = ''] = known.toSorted((one, other) => distance(unknown, one) - distance(unknown, other))
  const isNear = distance(unknown, nearest) <= Math.max(2, unknown.length / 3)
  throw new Error(
    `${whose} has an unknown option "${unknown}": ${isNear ? `did you mean "${nearest}"?` : `it takes ${known.join(', ')}`}`,
  )
}

/** Of Levenshtein: how many characters are to be added, taken away or replaced. */
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
