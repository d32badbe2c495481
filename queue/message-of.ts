import { inspect } from 'node:util'

/** Returns the message of a thrown value. A function can throw any value, also one that String() cannot convert. */
export const messageOf = (thrown: unknown): string => {
  if (thrown instanceof Error) return thrown.message
  return typeof thrown === 'string' ? thrown : inspect(thrown)
}
