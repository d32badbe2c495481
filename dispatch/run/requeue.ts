import { type Due, dueDate, type Finish } from '#queue'

interface EndOfRun {
  /** The time since the last pass began. */
  passMs: number
  /**
   * Returns the time at which another revision of the function needs the object to run again. Called if the run has not
   * failed.
   */
  rerunAt: () => Date | undefined
  now: () => Date
}

/**
 * Returns the finish with its requeue. The delay counts from the beginning of the pass, and ends at the latest when the
 * object has to run again.
 */
export function withRequeue(finish: Finish, { passMs, rerunAt, now }: EndOfRun): Finish {
  if (finish.kind === 'error' || finish.kind === 'terminal') return finish
  const again = rerunAt()
  if (finish.kind === 'done') return again === undefined ? finish : { kind: 'requeue', at: again }
  return { ...finish, at: earlier(fromNow(finish.at, passMs), again, now()) }
}

const fromNow = (due: Due, passMs: number): Due => (due instanceof Date ? due : { afterMs: due.afterMs - passMs })

const earlier = (due: Due, other: Date | undefined, now: Date): Due =>
  other !== undefined && other < dueDate(due, now) ? other : due
