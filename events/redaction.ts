import { verbOf } from './event.ts'
import type { Reader } from './reader.ts'
import type { Kind } from './references.ts'
import { isReference } from './stored.ts'
import { kindFilter } from './subjects.ts'
import type { Writer } from './writer.ts'

/**
 * Replaces objects of these kinds in EVENTS with references. The objects were stored before the kinds became
 * reference-only.
 */
export async function redact(
  kinds: readonly Kind[],
  reader: Pick<Reader, 'heads'>,
  writer: Pick<Writer, 'redact'>,
): Promise<void> {
  if (kinds.length === 0) return
  const heads = await reader.heads(kinds.map(kindFilter))
  const whole = heads.filter(({ message }) => !isReference(message) && verbOf(message.headers['ce-type']) !== undefined)
  for (const { subject } of whole) await writer.redact(subject)
}
