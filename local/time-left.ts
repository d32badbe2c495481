/** What a long piece of work has done so far. */
export interface Work {
  /** Seconds since it began. */
  elapsed: number
  /** Seconds that all of it takes on the machine where that was measured. */
  expected: number
  /** 0 to 1, in time as it was measured there. */
  share: number
}

/** From this share on, the pace of this machine alone tells how long the rest takes. */
const PACE_IS_KNOWN = 0.2

/** Seconds. What was measured elsewhere counts less and less. */
export function secondsLeft({ elapsed, expected, share }: Work): number {
  const rest = 1 - share
  const known = Math.min(1, share / PACE_IS_KNOWN)
  const byPace = share > 0 ? (elapsed / share) * rest : 0
  return known * byPace + (1 - known) * expected * rest
}

/** `40 s`, `2 min 10 s`: of what is only estimated, tens of seconds. */
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
