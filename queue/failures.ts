/**
 * What is known of the runs of a key since its last successful run. Advisory: a timer that fires may overwrite a token
 * with higher counts.
 */
export interface Failures {
  /** Failed runs. */
  attempt: number
  /**
   * Runs in a row that were cut short: their process died or lost their lease before they ended, and before they had
   * changed anything. Left out: none.
   */
  cuts?: number
  /** True: two runs in a row were cut short, perhaps because they crashed their process. */
  suspect?: boolean
}

export function worst(...known: readonly Failures[]): Failures {
  const cuts = Math.max(0, ...known.map((failures) => failures.cuts ?? 0))
  return {
    attempt: Math.max(0, ...known.map(({ attempt }) => attempt)),
    ...(cuts > 0 && { cuts }),
    ...(known.some(({ suspect }) => suspect) && { suspect: true }),
  }
}
