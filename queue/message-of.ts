import { inspect } from 'node:util'

/** What to say of whatever was thrown: functions throw anything, also what has no string. */
export const messageOf = (thrown: unknown): string => {
  if (thrown instanceof Error) return thrown.message
  return typeof thrown === 'string' ? thrown : inspect(thrown)
}
