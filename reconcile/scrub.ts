import { isRecord, type KubeObject } from '#contracts'

/** An object, or an object that a function returned and that may be incomplete. */
export type Contents = Pick<KubeObject, 'apiVersion' | 'kind'> & Record<string, unknown>

/** Shorter values occur in any text by chance. */
const SHORTEST = 4
/** The number of characters that identify a longer value. Messages quote only the beginning of a long value. */
const RECOGNISED = 16
/** The placeholder for confidential values in a text. */
export const CONFIDENTIAL = '[confidential]'

/**
 * Returns a function that removes the contents of these objects, except metadata and conditions, from a text. Contents
 * are the values of a Secret as text and in base64, and every text and number of other kinds, also quoted as in JSON,
 * escaped as in a URL, line by line, and cut off at the end.
 */
export function scrubber(objects: readonly Contents[]): (text: string) => string {
  const values = objects.flatMap(valuesIn).flatMap((value) => [value, quoted(value), inUrl(value), ...linesOf(value)])
  const known = [...new Set(values)].filter(({ length }) => length >= SHORTEST)
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

function valuesIn(object: Contents): string[] {
  const { apiVersion, kind, metadata: _, ...content } = object
  const encoded = textsIn(content['data'])
  const plain = textsIn(content['stringData'])
  const ofSecret = [...encoded, ...encoded.map(decoded), ...plain, ...plain.map(inBase64)]
  if (apiVersion === 'v1' && kind === 'Secret') return ofSecret
  // A List of Secrets, and a Secret without its apiVersion: no outcome with one is valid.
  const items = [content['items']].flat().filter(isRecord) as Contents[]
  return [...textsIn(withoutConditions(content)), ...items.flatMap(valuesIn), ...(kind === 'Secret' ? ofSecret : [])]
}

/** Removes conditions, because they hold the messages of earlier failures of the same kind. */
function withoutConditions({ status, ...content }: Record<string, unknown>): Record<string, unknown> {
  if (!isRecord(status)) return { ...content, status }
  const { conditions: _, ...rest } = status
  return { ...content, status: rest }
}

/** `within`: the value may be a cycle, if a function in this process has returned it. */
function textsIn(value: unknown, within: ReadonlySet<unknown> = new Set()): string[] {
  if (typeof value === 'string') return [value]
  if (typeof value === 'number' || typeof value === 'bigint') return [String(value)]
  if (typeof value !== 'object' || value === null || within.has(value)) return []
  const inside = new Set([...within, value])
  return Object.values(value).flatMap((one) => textsIn(one, inside))
}

const inBase64 = (text: string): string => Buffer.from(text).toString('base64')

const decoded = (base64: string): string => Buffer.from(base64, 'base64').toString()

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

/** The placeholder for confidential values in a record. */
export const WITHHELD = '(withheld)'

/**
 * Returns an object without its contents: the names of its fields, and the metadata that identify it. Annotations are
 * left out, because they may hold a copy of the whole object. The object may be incomplete, as a function returned it.
 */
export function withoutContents({ apiVersion, kind, metadata, ...content }: KubeObject): KubeObject {
  const { name, namespace, uid, resourceVersion, labels, ownerReferences } = metadata ?? {}
  const kept = { name, namespace, uid, resourceVersion, labels, ownerReferences }
  const known = Object.entries(kept).filter(([, value]) => value !== undefined)
  return {
    apiVersion,
    kind,
    metadata: Object.fromEntries(known) as unknown as KubeObject['metadata'],
    ...Object.fromEntries(Object.entries(content).map(([field, value]) => [field, withoutValues(value)])),
  }
}

export const withoutValues = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.keys(value).map((key) => [key, WITHHELD]))
    : WITHHELD
