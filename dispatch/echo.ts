/** What a run says of itself where it writes through. */
export const originOf = (reconciler: string, key: string, owner: string): string => `${reconciler}/${key}/${owner}`

/** Which run of this key says so; undefined when it was another key's. */
export function ownerIn(origin: string, reconciler: string, key: string): string | undefined {
  const before = originOf(reconciler, key, '')
  return origin.startsWith(before) ? origin.slice(before.length) : undefined
}
