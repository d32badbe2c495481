/** Returns the origin with which a run puts its writes into EVENTS. */
export const originOf = (reconciler: string, key: string, owner: string): string => `${reconciler}/${key}/${owner}`

/** Returns the owner of the lease of the run that made the write. Undefined if a run of another key made it. */
export function ownerIn(origin: string, reconciler: string, key: string): string | undefined {
  const before = originOf(reconciler, key, '')
  return origin.startsWith(before) ? origin.slice(before.length) : undefined
}
