/** The progress of a long piece of work. */
export interface Work {
  /** Seconds since it began. */
  elapsed: number
  /** The total seconds on the machine of the measurement. */
  expected: number
  /** The finished share of the measured time, 0 to 1. */
  share: number
}

/** From this share on, only the speed of this machine counts for the estimate. */
const PACE_IS_KNOWN = 0.2

/** Returns the remaining seconds. The measured total counts less as the work proceeds. */
export function secondsLeft({ elapsed, expected, share }: Work): number {
  const rest = 1 - share
  const known = Math.min(1, share / PACE_IS_KNOWN)
  const byPace = share > 0 ? (elapsed / share) * rest : 0
  return known * byPace + (1 - known) * expected * rest
}

/** Formats seconds as `40 s` or `2 min 10 s`. Estimates over a minute are rounded to ten seconds. */
export function roughly(seconds: number): string {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`
  const tens = Math.round(seconds / 10) * 10
  const [minutes, rest] = [Math.floor(tens / 60), tens % 60]
  return rest === 0 ? `${minutes} min` : `${minutes} min ${rest} s`
}

const CELLS = 20

/** `▰▰▰▰▱▱▱▱ 42 %, about 2 min 10 s left`. */
export function barOf(work: Work): string {
  const full = Math.floor(work.share * CELLS)
  const left = work.share >= 1 ? '' : `, about ${roughly(secondsLeft(work))} left`
  return `${'▰'.repeat(full)}${'▱'.repeat(CELLS - full)} ${Math.floor(work.share * 100)} %${left}`
}
