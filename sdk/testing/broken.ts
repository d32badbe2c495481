import { isDeepStrictEqual } from 'node:util'
import { firstOwnPlace, isRecord } from '#contracts'

/** The lines of differences that the error of a law shows. */
const MOST_LINES = 25
const LONGEST_LINE = 160

interface Found {
  /** The differences, one a line. */
  lines?: readonly string[]
  /** What the two sides of the differences are: before the arrow, and after it. */
  sides?: readonly [string, string]
  /** The error of the function or of the API server that the difference comes from. */
  because?: Error | undefined
  /** In which of the worlds that are compared this error is. */
  where?: string
}

/** The error of a law that does not hold: its cause first, then some lines, then the way to repeat the case alone. */
export class LawBroken extends Error {
  override readonly name: string = 'LawBroken'
  readonly #headline: string
  readonly #found: Found

  constructor(headline: string, found: Found = {}, repeat?: string) {
    super(textOf(headline, found, repeat))
    this.#headline = headline
    this.#found = found
  }

  /** What is the same under each law that meets it: the error of the function, in words and with its place. */
  get because(): string | undefined {
    return this.#found.because && becauseOf({ because: this.#found.because })
  }

  protected get headline(): string {
    return this.#headline
  }

  /** Returns an error of one line, which leaves its cause to another law of the scenario. */
  asToldBy(law: string): LawBroken {
    const [cause] = becauseOf(this.#found)?.split('\n') ?? []
    return new LawBroken(`${[cause, this.#headline].filter(Boolean).join(': ')} (see the law "${law}")`)
  }

  /** Returns the same error, found in this case of a law. */
  inCase(when: string, repeat: string): LawBroken {
    return new LawBroken(`${this.#headline}${when}`, this.#found, repeat)
  }
}

/** What the function does under each law. The law adds where. */
export class FoundAnywhere extends LawBroken {
  override get because(): string {
    return super.because ?? this.headline
  }

  override asToldBy(law: string): LawBroken {
    return new LawBroken(`${this.because.split('\n')[0]} (see the law "${law}")`)
  }
}

/** A simulation never becomes idle. The lines say who goes on, and with which values. */
export class NeverIdle extends FoundAnywhere {
  override readonly name = 'NeverIdle'
}

/** The headline of a function that is random, or reads a clock. */
export const TWO_CALLS_DIFFER = 'two calls on the same input differ'
export const TWO_CALLS = ['first call', 'second call'] as const

const becauseOf = ({ because, where }: Found): string | undefined =>
  because &&
  [`${where === undefined ? '' : `${where}: `}${because.name}: ${because.message}`, ...frameOf(because)].join('\n')

function textOf(headline: string, found: Found, repeat?: string): string {
  const { lines = [], sides } = found
  const because = becauseOf(found)
  const shown = lines.slice(0, lines.length > MOST_LINES ? MOST_LINES - 1 : MOST_LINES)
  const more = lines.length - shown.length
  return [
    ...(because === undefined ? [] : [because]),
    headline,
    ...(sides === undefined || lines.length === 0 ? [] : [`  ${sides.join(' → ')}:`]),
    ...shown.map((line) => `  ${line}`),
    ...(more > 0 ? [`  … and ${more} more`] : []),
    ...(repeat === undefined ? [] : [`to repeat this case alone: ${repeat}`]),
  ].join('\n')
}

/** The first frame of a stack that is in a file of the author. */
function frameOf({ stack = '' }: Error): string[] {
  const frames = stack.split('\n').filter((line) => line.startsWith('    at '))
  const own = frames.find((frame) => firstOwnPlace([frame]) !== undefined)
  return own === undefined ? [] : [`  ${own.trim()}`]
}

/** Returns the differences between two objects, one a line: with `+` what only the second has, with `-` the first. */
export const changesBetween = (before: unknown, after: unknown): string[] =>
  [...fieldsBetween(before, after)].map(({ path, before: old, after: young }) => {
    if (old === undefined) return cut(`+ ${path}: ${JSON.stringify(young)}`)
    if (young === undefined) return cut(`- ${path}: ${JSON.stringify(old)}`)
    return changeOf(path, JSON.stringify(old), JSON.stringify(young))
  })

/** What both sides show before their first difference, in characters, if they are too long for one line. */
const SHOWN_BEFORE = 20

function changeOf(path: string, old: string, young: string): string {
  const line = `~ ${path}: ${old} → ${young}`
  if (line.length <= LONGEST_LINE) return line
  let same = 0
  while (same < old.length && old[same] === young[same]) same++
  const from = Math.max(0, same - SHOWN_BEFORE)
  const most = Math.max(3 * SHOWN_BEFORE, Math.floor((LONGEST_LINE - path.length) / 2))
  const part = (text: string) =>
    `${from > 0 ? '…' : ''}${text.slice(from, from + most)}${text.length > from + most ? '…' : ''}`
  return `~ ${path}: ${part(old)} → ${part(young)}`
}

export const cut = (line: string): string => (line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)}…` : line)

interface ChangedField {
  path: string
  /** Undefined: it is not there. */
  before: unknown
  after: unknown
}

/** Yields the smallest fields in which two values differ. */
export function* fieldsBetween(before: unknown, after: unknown, path = ''): Generator<ChangedField> {
  if (isDeepStrictEqual(before, after)) return
  const isDeep = [before, after].every(isRecord) || [before, after].every(Array.isArray)
  if (isDeep) {
    const [old, young] = [before, after] as [Record<string, unknown>, Record<string, unknown>]
    const names = new Set([...Object.keys(old), ...Object.keys(young)])
    for (const name of names) yield* fieldsBetween(old[name], young[name], path + step(name, Array.isArray(before)))
  } else yield { path, before, after }
}

const step = (name: string, isIndex: boolean): string => {
  if (isIndex) return `[${name}]`
  return /^[A-Za-z_][\w-]*$/.test(name) ? `.${name}` : `['${name}']`
}
