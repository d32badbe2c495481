const places = new WeakMap<object, string>()

/** Notes where a function has thrown the error: `TypeError at src/website.ts:12:5`. */
export const notePlace = (error: object, place: string): void => void places.set(error, place)

/** Returns where a function has thrown the error. Undefined: not known, or the function has not thrown it. */
export const placeOf = (error: unknown): string | undefined =>
  typeof error === 'object' && error !== null ? places.get(error) : undefined

/** A class, a file, a line and a column. */
const PLACE = /^[\w$]+ at \S.*:\d+:\d+$/
const LONGEST = 500

/** Returns a place that another process has told. Undefined: it is none. */
export const placeIn = (told: unknown): string | undefined =>
  typeof told === 'string' && told.length <= LONGEST && PLACE.test(told) ? told : undefined
