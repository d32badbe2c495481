/** Returns the median; infinity for an empty list, so that missing results never count as fast ones. */
export const median = (numbers: readonly number[]): number => quantile(numbers, 0.5)

/** The value that a share of the numbers is not above. */
export const quantile = (numbers: readonly number[], share: number): number =>
  numbers.toSorted((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(numbers.length * share))] ??
  Number.POSITIVE_INFINITY

/** Median and the value that one in a hundred is above. */
export function percentiles(times: readonly number[], digits = 1): string {
  return `${quantile(times, 0.5).toFixed(digits)} / ${quantile(times, 0.99).toFixed(digits)}`
}
