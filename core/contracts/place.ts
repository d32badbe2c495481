import { existsSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { fileURLToPath } from 'node:url'

const places = new WeakMap<object, string>()

/** Notes where a function has thrown the error: `TypeError at src/website.ts:12:5`. */
export const notePlace = (error: object, place: string): void => void places.set(error, place)

/** Returns where a function has thrown the error. Undefined: not known, or the function has not thrown it. */
export const placeOf = (error: unknown): string | undefined =>
  typeof error === 'object' && error !== null ? places.get(error) : undefined

/** Returns the places of an error and of its cause. */
export const placesOf = (error: unknown): string[] =>
  [error, error instanceof Error ? error.cause : undefined].flatMap((one) => placeOf(one) ?? [])

/** A class, a file, a line and a column. */
const PLACE = /^[\w$]+ at \S.*:\d+:\d+$/
const LONGEST = 500

/** Returns a place that another process has told. Undefined: it is none. */
export const placeIn = (told: unknown): string | undefined =>
  typeof told === 'string' && told.length <= LONGEST && PLACE.test(told) ? told : undefined

const FAIRLEAD = fileURLToPath(new URL('../..', import.meta.url))
/** The folders of Fairlead whose code calls functions. Its built-in functions are functions like others. */
const CALLERS = new Set(['bridge', 'cli', 'core', 'dispatch', 'kube', 'reconcile', 'sdk', 'streams'])

/** Notes the class of an error and its first frame in the author's own files, and returns the error. */
export function withPlace(error: unknown): unknown {
  if (!(error instanceof Error) || placeOf(error) !== undefined) return error
  const place = firstOwnPlace(framesOf(error))
  if (place !== undefined) notePlace(error, `${error.constructor.name || 'Error'} at ${place}`)
  return error
}

/** The frame of toInvoke(). Frames after it are those of its caller, which may be a test of the author. */
const OUTERMOST = /\bdecide \(.*[\\/]sdk[\\/]invoke\.[jt]s:/

/** Of a frame; a message may have any lines. */
const LONGEST_FRAME = 1000

/** The frames follow the message, which may have lines that look like frames. */
function framesOf({ message, stack }: Error): string[] {
  // Error.prepareStackTrace of a module may return anything.
  if (typeof stack !== 'string') return []
  const at = stack.indexOf(message)
  const lines = (at === -1 ? stack : stack.slice(at + message.length)).split('\n')
  const frames = lines.filter(isFrame)
  const last = frames.findIndex((frame) => OUTERMOST.test(frame))
  return last === -1 ? frames : frames.slice(0, last)
}

const isFrame = (line: string): boolean => line.length <= LONGEST_FRAME && line.startsWith('    at ')

/** A path or URL without its query, a line and a column. */
const LOCATION = /((?:file:\/\/)?\/[^()?]+)(?:\?[^():]*)?:(\d+:\d+)\)?$/

/** Returns the path or URL in a frame of a stack, and where it begins in the line. Undefined: the line is no frame of a file. */
export function urlIn(line: string): { url: string; at: number } | undefined {
  const found = isFrame(line) ? LOCATION.exec(line) : null
  return found?.[1] === undefined ? undefined : { url: found[1], at: found.index }
}

/**
 * Returns the first frame in a file of the author, relative to the root of its package: `src/website.ts:12:5`. Leaves
 * out frames of dependencies, of Fairlead and of Node.js, and of files that do not exist: a line of a message may look like a frame,
 * and a place is shown as it is.
 */
export function firstOwnPlace(frames: readonly string[]): string | undefined {
  for (const frame of frames) {
    const [, url, place] = LOCATION.exec(frame) ?? []
    if (url === undefined) continue
    const file = url.startsWith('file:') ? pathOf(url) : url
    const root = file === undefined || isOfOthers(file) ? undefined : rootOf(dirname(file))
    if (file !== undefined && root !== undefined && existsSync(file)) return `${relative(root, file)}:${place}`
  }
  return undefined
}

function pathOf(url: string): string | undefined {
  try {
    return fileURLToPath(url)
  } catch {
    return undefined
  }
}

function isOfOthers(file: string): boolean {
  const [folder = ''] = file.startsWith(FAIRLEAD) ? relative(FAIRLEAD, file).split(sep) : []
  const isOfPackage = folder !== '' && folder !== 'node_modules'
  return isOfPackage ? CALLERS.has(folder) : file.includes(`${sep}node_modules${sep}`)
}

const roots = new Map<string, string | undefined>()

/** Returns the folder of the nearest package.json. Undefined: there is none. */
function rootOf(folder: string): string | undefined {
  if (roots.has(folder)) return roots.get(folder)
  const above = dirname(folder)
  const root = existsSync(join(folder, 'package.json')) ? folder : above === folder ? undefined : rootOf(above)
  roots.set(folder, root)
  return root
}
