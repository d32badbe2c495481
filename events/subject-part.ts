import { createHash } from 'node:crypto'

/** Thrown for a string that Kubernetes never accepts as a name, or a subject that no object has. */
export class SubjectError extends TypeError {
  override readonly name = 'SubjectError'
}

/** The part that means "none": no namespace, no owner, the core group. */
export const NONE = '_'
const PLAIN = /^[A-Za-z0-9_-]+$/
/**
 * The longest part in characters. nats-server closes a connection that sends a line over 4096 bytes (max_control_line),
 * and a subject has two parts of free length, for owner and name. ASCII names of up to 253 characters stay below the
 * limit.
 */
const MAX_PART = 768
const MAX_HEAD = 32
/** The decoded form of a longer name. It contains a `%`, which no Kubernetes name may have. */
const SHORTENED = /^([^]{1,32})%([0-9a-f]{64})$/

/**
 * Encodes any non-empty string as one part of a subject (NATS: a token): every UTF-8 byte outside `A-Za-z0-9_-` becomes
 * `%XX`, and the string `_` becomes `%5F`. A string that is too long keeps its first 32 characters, followed by `=` and
 * the SHA-256 of the whole string. Such strings occur because RBAC has no maximum name length, and Kubernetes does not
 * check owner references. Two strings have the same part only if their hashes collide.
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
 * Decodes exactly the results of encodeSubjectPart. A string that was too long comes back as its first characters, `%`
 * and the hash, which encodes to the same part.
 */
export function decodeSubjectPart(part: string): string {
  if (PLAIN.test(part) && part !== NONE && part.length <= MAX_PART) return part
  const text = unescaped(part.replace(/=(?=[0-9a-f]{64}$)/, '%25'))
  if (text === undefined || encodeSubjectPart(text) !== part) throw new SubjectError(`${part} is not an escaped name`)
  return text
}

/** Whether the name is a shortened form, because the name is too long for a part. */
export const isShortened = (name: string): boolean => SHORTENED.test(name)

const escaped = (text: string): string =>
  encodeURIComponent(text).replaceAll(/[.!~*'()]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`)

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

/** Returns the first characters, never half of a surrogate pair. */
const headOf = (text: string): string => text.slice(0, MAX_HEAD).replace(/[\uD800-\uDBFF]$/, '')

function unescaped(part: string): string | undefined {
  try {
    return decodeURIComponent(part)
  } catch {
    return undefined
  }
}
