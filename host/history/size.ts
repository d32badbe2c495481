/** Returns the approximate number of characters of the value as JSON, at most `most` + 1: the walk ends there. */
export function sizeOf(value: unknown, most: number): number {
  let size = 0
  const walk = (one: unknown): void => {
    if (size > most) return
    if (typeof one === 'string') size += one.length + 2
    else if (typeof one !== 'object' || one === null) size += 5
    else if (Array.isArray(one)) for (const each of one) walk(each)
    else
      for (const field in one) {
        size += field.length + 4
        walk((one as Record<string, unknown>)[field])
      }
  }
  walk(value)
  return Math.min(size, most + 1)
}
