/** A function that changes what it was given would hide a difference from us: it gets a TypeError instead. */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value
  Object.freeze(value)
  for (const field of Object.values(value)) deepFreeze(field)
  return value
}
