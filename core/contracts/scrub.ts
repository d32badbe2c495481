/*
 * Removing values from texts: the contents of Secrets from the messages of a run, and the configuration of a function
 * from what its calls tell.
 */

import { existsSync } from 'node:fs'
import { type KubeObject, namespacedName, type ResourceRef } from './objects.ts'
import { urlIn } from './place.ts'

/** Shorter values occur in any text by chance. */
const SHORTEST = 4
/** The number of characters that identify a longer value. Messages quote only the beginning of a long value. */
const RECOGNISED = 16
/** The placeholder for confidential values in a text. */
export const CONFIDENTIAL = '[confidential]'

/** Removes confidential values from a text. `known`: more names that are public in it, such as the place of an error. */
export type Scrub = (text: string, known?: readonly string[]) => string

/**
 * Returns a function that removes these values from a text: also quoted as in JSON, escaped as in a URL, line by line,
 * and cut off at the end. A value stays where it is a part of a longer public name: `tenant` in `TenantDatabase shop/tenant`, and in
 * the path of a file that exists, in a frame of a stack. A value that is a whole name is removed, except where the text names an object
 * by it. `names`: a kind with a space behind it stands before names. It is called at most once.
 */
export function scrubberOfValues(values: readonly string[], names: () => Iterable<string> = () => []): Scrub {
  const forms = values.flatMap((value) => [value, quoted(value), inUrl(value), ...linesOf(value)])
  const known = [...new Set(forms)].filter(({ length }) => length >= SHORTEST)
  const byHead = new Map<string, string[]>()
  for (const value of known) {
    const head = value.slice(0, SHORTEST)
    const others = byHead.get(head)
    if (others === undefined) byHead.set(head, [value])
    else others.push(value)
  }
  let named: ReadonlySet<string> | undefined
  return (text, also = []) => {
    const near = headsIn(text).flatMap((head) => byHead.get(head) ?? [])
    const isPublic = (part: Span) =>
      isInName(text, part, (named ??= new Set(names()))) ||
      namesObject(text, part, named) ||
      [CONFIDENTIAL, ...also].some((name) => isWithin(text, part, name)) ||
      isInPath(text, part)
    const spans = near.flatMap((value) => spansOf(value, text, isPublic))
    return without(text, spans)
  }
}

/** A part of a text: from the first character to the one behind the last. */
interface Span {
  from: number
  to: number
}

/**
 * Only values whose first characters occur in the text are compared with it, because there may be thousands of values.
 */
const headsIn = (text: string): string[] => [
  ...new Set(Array.from({ length: text.length }, (_, at) => text.slice(at, at + SHORTEST))),
]

function spansOf(value: string, text: string, isPublic: (part: Span) => boolean): Span[] {
  const head = value.slice(0, RECOGNISED)
  const spans: Span[] = []
  for (let from = text.indexOf(head); from !== -1; ) {
    const span = { from, to: from + commonLength(text.slice(from, from + value.length), value) }
    const isKept = isPublic(span)
    if (!isKept) spans.push(span)
    from = text.indexOf(head, isKept ? from + 1 : span.to)
  }
  return spans
}

function without(text: string, spans: readonly Span[]): string {
  let [scrubbed, at] = ['', 0]
  for (const { from, to } of spans.toSorted((a, b) => a.from - b.from || b.to - a.to)) {
    // A part that overlaps the one before is the same gap.
    if (from >= at) scrubbed += text.slice(at, from) + CONFIDENTIAL
    at = Math.max(at, to)
  }
  return scrubbed + text.slice(at)
}

/** Whether a part of a text lies inside of one of these longer names, which is not a part of a longer word there. */
function isInName(text: string, { from, to }: Span, names: ReadonlySet<string>): boolean {
  const ends = boundaries(text, to, 1)
  return boundaries(text, from, -1).some((begin) =>
    ends.some((end) => end - begin > to - from && names.has(text.slice(begin, end))),
  )
}

/** Whether a part of a text is a name, and names an object there: `acme` in `Job acme`, `jobs.batch "acme"` and `acme-schema-2`. */
function namesObject(text: string, { from, to }: Span, names: ReadonlySet<string>): boolean {
  const [ends, suffix] = END_OF_NAME.exec(text.slice(to, to + LONGEST_NAME)) ?? []
  if (ends === undefined || IN_NAME.test(text[from - 1] ?? '') || !names.has(text.slice(from, to))) return false
  const [, word] = WORD_BEFORE.exec(text.slice(Math.max(0, from - LONGEST_NAME), from)) ?? []
  return suffix !== undefined || (word !== undefined && names.has(word))
}

/** What an owner puts behind its name. In a URL, or with a port or password behind it, it is something else. */
const END_OF_NAME = /^(-[a-z0-9]+)*(?![\w@/-]|[.:]\S)/
const WORD_BEFORE = /(?:^|[^\w.-])([\w.-]+ )(?:\\?")?$/

/** Names have one space at most: `Pod shop/web-0`. */
const IN_NAME = /[\w.:/-]/
const IN_WORD = /\w/
/** The limits of a search, because a text may have thousands of matches. */
const MOST_BOUNDARIES = 16
const LONGEST_NAME = 600

/** Returns where names may begin before this place of a text, or end behind it. */
function boundaries(text: string, place: number, step: 1 | -1): number[] {
  const isAt = (of: RegExp, at: number) => of.test(text[at] ?? '')
  const found: number[] = []
  let hasSpace = false
  for (let at = place; found.length < MOST_BOUNDARIES && Math.abs(at - place) < LONGEST_NAME; at += step) {
    const [inside, outside] = step === 1 ? [at - 1, at] : [at, at - 1]
    if (isAt(IN_WORD, inside) && !isAt(IN_WORD, outside)) found.push(at)
    if (isAt(IN_NAME, outside)) continue
    if (hasSpace || text[outside] !== ' ') break
    hasSpace = true
  }
  return found
}

/** Whether a part of a text lies inside of this longer name there. */
function isWithin(text: string, { from, to }: Span, name: string): boolean {
  const isLonger = name.length > to - from
  return isLonger && text.slice(Math.max(0, to - name.length), from + name.length).includes(name)
}

/** Whether a part of a text lies inside of the longer path of a frame, and the file exists: a message may have any lines. */
function isInPath(text: string, { from, to }: Span): boolean {
  const start = from === 0 ? 0 : text.lastIndexOf('\n', from - 1) + 1
  const end = text.indexOf('\n', from)
  const frame = urlIn(text.slice(start, end === -1 ? undefined : end))
  if (frame === undefined) return false
  const [begin, behind] = [start + frame.at, start + frame.at + frame.url.length]
  const isInside = begin <= from && to <= behind && behind - begin > to - from
  return isInside && existsSync(frame.url.replace('file://', ''))
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

/** Returns the public names in texts about a Reconciler, its kinds, and these objects of the cluster. */
export function publicNames(
  reconciler: string,
  kinds: readonly (ResourceRef & { kind: string })[],
  objects: readonly KubeObject[],
): string[] {
  const namespaces = [...new Set(objects.flatMap(({ metadata }) => metadata.namespace ?? []))]
  return [
    reconciler,
    `reconciler ${reconciler}`,
    `Reconciler ${reconciler}`,
    ...kinds.flatMap(({ kind, resource, group }) => [kind, resource, group, `${resource}.${group}`]),
    // As Fairlead, and as the API server names an object: `Job acme`, `Job.batch "acme" is invalid`, `jobs.batch "acme" is forbidden`.
    ...kinds.flatMap(({ kind, resource, group }) =>
      [kind, resource].flatMap((one) => [`${one} `, ...(group === '' ? [] : [`${one}.${group} `])]),
    ),
    ...namespaces,
    ...kinds.flatMap(({ kind }) => namespaces.map((namespace) => `${kind} ${namespace}`)),
    ...objects.flatMap(({ kind, metadata }) => {
      const called = namespacedName(metadata)
      return [metadata.name, called, `${kind} ${called}`]
    }),
  ]
}

/** Returns an error that a log may show. It has only the name and the texts of the error and its causes, scrubbed. */
export function scrubbedError(error: unknown, scrub: Scrub): Error {
  if (!(error instanceof Error)) return new Error(scrub(String(error)))
  const { name, message, stack = '', cause } = error
  const shown = new Error(scrub(message), cause === undefined ? {} : { cause: scrubbedError(cause, scrub) })
  return Object.assign(shown, { name, stack: scrub(stack) })
}

/** Returns a reviver of JSON: a value may be quoted by a text, a number or the name of a field. */
export const withoutConfidential =
  (scrub: Scrub) =>
  (_: string, value: unknown): unknown => {
    if (typeof value === 'string') return scrub(value)
    if (typeof value === 'number') return scrub(String(value)) === String(value) ? value : CONFIDENTIAL
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [scrub(name), one]))
  }
