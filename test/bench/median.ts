/** Of none: infinite, so that what never came is never taken for what came soon. */
export const median = (numbers: readonly number[]): number =>
  numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.POSITIVE_INFINITY

/** Median and the value that one in a hundred is above. */
export function percentiles(times: readonly number[], digits = 1): string {
  const sorted = times.toSorted((a, b) => a - b)
  const at = (share: number) =>
    (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN).toFixed(digits)
  return `${at(0.5)} / ${at(0.99)}`
}
