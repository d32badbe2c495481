import { createHash } from 'node:crypto'

/** A string that Kubernetes would never accept as a name, or a subject that no object has. */
export class SubjectError extends TypeError {
  override readonly name = 'SubjectError'
}

/** The part that means "none": no namespace, no owner, the core group. */
export const NONE = '_'
const PLAIN = /^[A-Za-z0-9_-]+$/
/**
 * The longest part. nats-server closes the connection of whoever sends a line over 4096 bytes (max_control_line), and a
 * subject has two parts of free length, for owner and name. No ASCII name of up to 253 characters comes that far.
 */
const MAX_PART = 768
const MAX_HEAD = 32
/** What stands for a longer name: it has a `%`, which no name in Kubernetes may have. */
const SHORTENED = /^([^]{1,32})%([0-9a-f]{64})$/

/**
 * One part of a subject (NATS: a token) for any non-empty string: every UTF-8 byte outside `A-Za-z0-9_-` becomes `%XX`, and the string `_`
 * becomes `%5F`. Of what is too long (RBAC knows no longest name, and nobody checks owner references) the first 32
 * characters stay, then `=` and the SHA-256 of all of it. As injective as that is.
 */
export function encodeSubjectPart(text: string): string {
  if (PLAIN.test(text) && text.length <= MAX_PART) return text === NONE ? '%5F' : text
  if (text === '') throw new SubjectError('an empty name cannot be part of a subject')
  if (!text.isWellFormed()) throw new SubjectError(`${JSON.stringify(text)} is not valid Unicode`)
  const [, head, digest] = SHORTENED.exec(text) ?? []
  if (head !== undefined) return `${escaped(head)}=${digest}`
  const part = escaped(text)
  return part.length <= MAX_PART ? part : `${escaped(headOf(text))}=${sha256(text)}`
}

/**
 * Accepts exactly what encodeSubjectPart produces. What was too long comes back as its first characters, `%` and the hash,
 * which encodes to the same part.
 */
export function decodeSubjectPart(part: string): string {
  if (PLAIN.test(part) && part !== NONE && part.length <= MAX_PART) return part
  const text = unescaped(part.replace(/=(?=[0-9a-f]{64}$)/, '%25'))
  if (text === undefined || encodeSubjectPart(text) !== part) throw new SubjectError(`${part} is not an escaped name`)
  return text
}

/** It is not the name itself, which is too long for a part. */
export const isShortened = (name: string): boolean => SHORTENED.test(name)

const escaped = (text: string): string =>
  encodeURIComponent(text).replaceAll(/[.!~*'()]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

/** Never half of a surrogate pair. */
const headOf = (text: string): string => text.slice(0, MAX_HEAD).replace(/[\uD800-\uDBFF]$/, '')

function unescaped(part: string): string | undefined {
  try {
    return decodeURIComponent(part)
  } catch {
    return undefined
  }
}
