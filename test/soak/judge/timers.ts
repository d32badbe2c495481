import type { History } from './history.ts'
import type { Run } from './runs.ts'

/**
 * Timers that were stored for an earlier moment than their run had asked for: of the runs of one owner, the last, for the
 * others were followed by one more. `wallOf` makes the server's time of a
 * diary's; the error of the queue's clocks is within the tolerance.
 */
export function armedTooEarly(
  runs: Iterable<Run>,
  { promised }: Pick<History, 'promised'>,
  wallOf: (monotonic: number) => number,
  toleranceMs: number,
): string[] {
  const found: string[] = []
  const lastOf = new Map([...runs].toSorted((a, b) => a.start - b.start).map((run) => [run.owner, run]))
  for (const { run, key, owner, end, dueInMs } of lastOf.values()) {
    if (end === undefined || dueInMs === undefined) continue
    for (const due of promised.get(owner) ?? []) {
      const early = wallOf(end) + dueInMs - due
      if (early > toleranceMs)
        found.push(`${key}: run ${run} asked for ${dueInMs} ms, armed ${early.toFixed(0)} ms early`)
    }
  }
  return found
}

/** A moment at which no server could fire. */
export interface Away {
  from: number
  to: number
}

/** Lateness of the timers that came due while the server was well, in order. */
export const undisturbed = (lateness: History['lateness'], away: readonly Away[], settleMs: number): number[] =>
  lateness
    .filter(({ due }) => !away.some(({ from, to }) => due >= from - settleMs && due <= to + settleMs))
    .map(({ ms }) => ms)
    .toSorted((a, b) => a - b)
