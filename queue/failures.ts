/** What a key has behind it since a run of it succeeded. Advisory: a fire may overwrite a token that holds more. */
export interface Failures {
  /** Failed runs. */
  attempt: number
  /** Runs of it never ended, perhaps because they took their process along. */
  suspect?: boolean
}

/** Runs in a row that never ended. The first may well be somebody else's fault: it is repeated at once. */
const CUT_SHORT_LIMIT = 2

export const isSuspect = ({ attempt, cutShort }: { attempt: number; cutShort: boolean }): boolean =>
  cutShort && attempt >= CUT_SHORT_LIMIT

export const worst = (...known: readonly Failures[]): Failures => ({
  attempt: Math.max(0, ...known.map(({ attempt }) => attempt)),
  ...(known.some(({ suspect }) => suspect) && { suspect: true }),
})
