/*
 * Removing values from texts: the contents of Secrets from the messages of a run, and the configuration of a function
 * from what its calls tell.
 */

/** Shorter values occur in any text by chance. */
const SHORTEST = 4
/** The number of characters that identify a longer value. Messages quote only the beginning of a long value. */
const RECOGNISED = 16
/** The placeholder for confidential values in a text. */
export const CONFIDENTIAL = '[confidential]'

/**
 * Returns a function that removes these values from a text: also quoted as in JSON, escaped as in a URL, line by line,
 * and cut off at the end.
 */
export function scrubberOfValues(values: readonly string[]): (text: string) => string {
  const forms = values.flatMap((value) => [value, quoted(value), inUrl(value), ...linesOf(value)])
  const known = [...new Set(forms)].filter(({ length }) => length >= SHORTEST)
  const byHead = new Map<string, string[]>()
  for (const value of known) {
    const head = value.slice(0, SHORTEST)
    const others = byHead.get(head)
    if (others === undefined) byHead.set(head, [value])
    else others.push(value)
  }
  return (text) => {
    const near = headsIn(text).flatMap((head) => byHead.get(head) ?? [])
    return near.sort((a, b) => b.length - a.length).reduce(withoutValue, text)
  }
}

/**
 * Only values whose first characters occur in the text are compared with it, because there may be thousands of values.
 */
const headsIn = (text: string): string[] => [
  ...new Set(Array.from({ length: text.length }, (_, at) => text.slice(at, at + SHORTEST))),
]

function withoutValue(text: string, value: string): string {
  const head = value.slice(0, RECOGNISED)
  let [scrubbed, from] = ['', 0]
  for (let at = text.indexOf(head); at !== -1; at = text.indexOf(head, from)) {
    scrubbed += text.slice(from, at) + CONFIDENTIAL
    from = at + commonLength(text.slice(at, at + value.length), value)
  }
  return scrubbed + text.slice(from)
}

function commonLength(text: string, value: string): number {
  let length = 0
  while (length < text.length && text[length] === value[length]) length++
  return length
}

export const inBase64 = (text: string): string => Buffer.from(text).toString('base64')

const quoted = (text: string): string => JSON.stringify(text).slice(1, -1)

const inUrl = (text: string): string => encodeURIComponent(text.toWellFormed())

const linesOf = (text: string): string[] => (text.includes('\n') ? text.split('\n').map((line) => line.trim()) : [])

/** Returns an error that a log may show. It has only the name and the texts of the error and its causes, scrubbed. */
export function scrubbedError(error: unknown, scrub: (text: string) => string): Error {
  if (!(error instanceof Error)) return new Error(scrub(String(error)))
  const { name, message, stack = '', cause } = error
  const shown = new Error(scrub(message), cause === undefined ? {} : { cause: scrubbedError(cause, scrub) })
  return Object.assign(shown, { name, stack: scrub(stack) })
}

/** Returns a reviver of JSON: a value may be quoted by a text, a number or the name of a field. */
export const withoutConfidential =
  (scrub: (text: string) => string) =>
  (_: string, value: unknown): unknown => {
    if (typeof value === 'string') return scrub(value)
    if (typeof value === 'number') return scrub(String(value)) === String(value) ? value : CONFIDENTIAL
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [scrub(name), one]))
  }
