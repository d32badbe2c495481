/**
 * Returns a copy as the receiver of the JSON gets it: dates as RFC 3339, fields that are undefined left out. Throws an
 * Error with the path for a value that JSON cannot hold.
 */
export function plain(value: unknown, path: string): unknown {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value
  if (typeof value === 'number') return Number.isFinite(value) ? value : refuse(path, `is ${value}`)
  return typeof value === 'object'
    ? plainObject(value, path)
    : refuse(path, value === undefined ? 'is undefined' : `is a ${typeof value}`)
}

function plainObject(value: object, path: string): unknown {
  if (Array.isArray(value)) return value.map((item, index) => plain(item, `${path}[${index}]`))
  if (value instanceof Date)
    return Number.isNaN(value.getTime()) ? refuse(path, 'is an invalid Date') : value.toISOString()
  if (!isRecord(value)) refuse(path, `is a ${value.constructor.name}`)
  const fields = Object.entries(value).filter(([, field]) => field !== undefined)
  return Object.fromEntries(fields.map(([name, field]) => [name, plain(field, `${path}.${name}`)]))
}

/** True for an object literal, of this realm or another one. */
function isRecord(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

function refuse(path: string, what: string): never {
  throw new TypeError(`${path} ${what}, which is not JSON`)
}
