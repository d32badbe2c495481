const DAY_MS = 86_400_000

export function isTimeZone(name: string): boolean {
  try {
    // Intl accepts offsets such as +02:00 as well, but they are not names.
    return /^[A-Za-z]/.test(new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone)
  } catch {
    return false
  }
}

/**
 * Returns the instant at which clocks in the zone show this local time (given as if it were UTC), by RFC 5545 (3.3.5).
 * The first instant counts for a time that occurs twice. A time that is skipped is read with the offset before the
 * change.
 */
export function instantIn(timeZone: string, local: number): number {
  const offset = offsets(timeZone)
  const before = local - offset(local - DAY_MS)
  const after = local - offset(local + DAY_MS)
  const real = [before, after].filter((instant) => instant + offset(instant) === local)
  return real.length === 0 ? before : Math.min(...real)
}

/** Returns a function for the number of milliseconds that the zone is ahead of UTC at an instant. */
function offsets(timeZone: string): (instant: number) => number {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  })
  return (instant) => {
    const parts = Object.fromEntries(format.formatToParts(instant).map(({ type, value }) => [type, Number(value)]))
    const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts
    return Date.UTC(year, month - 1, day, hour, minute, second) - instant
  }
}
