/**
 * The failures of a key since its last successful run. Advisory: a timer that fires may overwrite a token with a higher
 * count.
 */
export interface Failures {
  /** Failed runs. */
  attempt: number
  /** True: runs of the key never ended, perhaps because they crashed their process. */
  suspect?: boolean
}

/**
 * The number of runs in a row that never ended after which a key is suspect. The first such run is repeated at once,
 * because another key in the same process may have caused the crash.
 */
const CUT_SHORT_LIMIT = 2

export const isSuspect = ({ attempt, cutShort }: { attempt: number; cutShort: boolean }): boolean =>
  cutShort && attempt >= CUT_SHORT_LIMIT

export const worst = (...known: readonly Failures[]): Failures => ({
  attempt: Math.max(0, ...known.map(({ attempt }) => attempt)),
  ...(known.some(({ suspect }) => suspect) && { suspect: true }),
})
