import type { Finish } from './types.ts'

/** So long after the run has ended, whatever is done to the wall clock meanwhile. */
interface Delay {
  afterMs: number
}

/** When a key runs again: at a time of the wall clock, or after a delay. */
export type Due = Date | Delay

/** The wall clock's time of a delay that begins now. */
export const dueDate = (due: Due, now: Date): Date =>
  due instanceof Date ? due : new Date(now.getTime() + due.afterMs)

/** For people. */
export function dated(finish: Finish, now: Date): Finish<Date> {
  if (finish.kind === 'requeue') return { ...finish, at: dueDate(finish.at, now) }
  return finish.kind === 'error' ? { ...finish, retryAt: dueDate(finish.retryAt, now) } : finish
}

export const isTime = (due: Due): boolean => !Number.isNaN(due instanceof Date ? due.getTime() : due.afterMs)
