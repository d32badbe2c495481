/** What a run says of itself where it writes through. */
export const originOf = (reconciler: string, key: string, owner: string): string => `${reconciler}/${key}/${owner}`

/**
 * A version that a run of this very key has written through, and has decided again on: the watch's echo of it is no
 * reason for another run. A run that ends otherwise (fenced, failed, killed) is repeated by the queue.
 */
export const isEcho = ({ fn, key, origin }: { fn: string; key: string; origin: string }): boolean =>
  origin.startsWith(`${fn}/${key}/`)
