/**
 * Freezes the input of a function. A function that changed its input would hide a difference; it gets a TypeError
 * instead.
 */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value
  Object.freeze(value)
  for (const field of Object.values(value)) deepFreeze(field)
  return value
}
