import { isDeepStrictEqual } from 'node:util'
import { firstOwnPlace, isRecord } from '#contracts'

/** The lines of differences that the error of a law shows. */
const MOST_LINES = 25
const LONGEST_LINE = 160

interface Found {
  /** The differences, one a line. */
  lines?: readonly string[]
  /** The error of the function or of the API server that the difference comes from. */
  because?: Error | undefined
}

/** The error of a law that does not hold: its cause first, then some lines, then the way to repeat the case alone. */
export class LawBroken extends Error {
  override readonly name = 'LawBroken'
  readonly #headline: string
  readonly #found: Found

  constructor(headline: string, found: Found = {}, repeat?: string) {
    super(textOf(headline, found, repeat))
    this.#headline = headline
    this.#found = found
  }

  /** The error of the function, in words and with its place. */
  get because(): string | undefined {
    return becauseOf(this.#found)
  }

  /** Returns an error that leaves the cause to another law of the scenario. */
  asToldBy(law: string): LawBroken {
    return new LawBroken(`${this.because?.split('\n')[0]} (see the law "${law}")`)
  }

  /** Returns the same error with the setting that repeats its case alone. */
  withCase(setting: string): LawBroken {
    return new LawBroken(this.#headline, this.#found, setting)
  }
}

const becauseOf = ({ because }: Found): string | undefined =>
  because && [`${because.name}: ${because.message}`, ...frameOf(because)].join('\n')

function textOf(headline: string, found: Found, repeat?: string): string {
  const { lines = [] } = found
  const because = becauseOf(found)
  const shown = lines.slice(0, lines.length > MOST_LINES ? MOST_LINES - 1 : MOST_LINES)
  const more = lines.length - shown.length
  return [
    ...(because === undefined ? [] : [because]),
    headline,
    ...shown.map((line) => `  ${line}`),
    ...(more > 0 ? [`  … and ${more} more`] : []),
    ...(repeat === undefined ? [] : [`to repeat this case alone, run this test with ${repeat}`]),
  ].join('\n')
}

/** The first frame of a stack that is in a file of the author. */
function frameOf({ stack = '' }: Error): string[] {
  const frames = stack.split('\n').filter((line) => line.startsWith('    at '))
  const own = frames.find((frame) => firstOwnPlace([frame]) !== undefined)
  return own === undefined ? [] : [`  ${own.trim()}`]
}

/** Returns the differences between two values, one a line. */
export const changesBetween = (before: unknown, after: unknown): string[] =>
  [...between(before, after, '')].map((line) => (line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)}…` : line))

function* between(before: unknown, after: unknown, path: string): Generator<string> {
  if (isDeepStrictEqual(before, after)) return
  const isDeep = [before, after].every(isRecord) || [before, after].every(Array.isArray)
  if (isDeep) {
    const [old, young] = [before, after] as [Record<string, unknown>, Record<string, unknown>]
    const names = new Set([...Object.keys(old), ...Object.keys(young)])
    for (const name of names) yield* between(old[name], young[name], path + step(name, Array.isArray(before)))
  } else if (before === undefined) yield `+ ${path}: ${JSON.stringify(after)}`
  else if (after === undefined) yield `- ${path}: ${JSON.stringify(before)}`
  else yield `~ ${path}: ${JSON.stringify(before)} → ${JSON.stringify(after)}`
}

const step = (name: string, isIndex: boolean): string => {
  if (isIndex) return `[${name}]`
  return /^[A-Za-z_][\w-]*$/.test(name) ? `.${name}` : `['${name}']`
}
