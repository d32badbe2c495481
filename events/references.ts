import type { ResourceRef } from '#contracts'
import { isWrongSequence, type JetStream } from '#jetstream'
import { parseJson } from './data.ts'
import { type Persistence, persist } from './persist.ts'
import { EXPECTED, type StreamNames } from './stream.ts'

/** A kind of object in any version. */
export type Kind = Pick<ResourceRef, 'group' | 'resource'>

const SUBJECT = 'cursor._.references'

/**
 * Returns the kinds, besides Secrets, of which only references travel: all kinds that any process of the installation
 * has requested. They are kept in EVENTS, so that they also apply to a process whose configuration lacks one.
 */
export async function agreeOnReferences(
  js: JetStream,
  { stream, root }: StreamNames,
  wanted: readonly Kind[],
  persistence: Persistence,
): Promise<Kind[]> {
  const mine = wanted.map(kindName)
  for (;;) {
    const message = await persist(() => js.lastOf(stream, root + SUBJECT), persistence)
    const known = message === undefined ? [] : (parseJson(Buffer.from(message.data).toString()) as string[])
    const all = new Set([...known, ...mine])
    if (all.size === known.length) return known.map(kindOf)
    try {
      const expected = { [EXPECTED]: message?.sequence ?? 0 }
      await persist(() => js.publish(root + SUBJECT, JSON.stringify([...all]), expected), persistence)
      return [...all].map(kindOf)
    } catch (error) {
      if (!isWrongSequence(error)) throw error
    }
  }
}

export function referenceRule(kinds: readonly Kind[]): (kind: Kind) => boolean {
  const names = new Set([SECRETS, ...kinds].map(kindName))
  return (kind) => names.has(kindName(kind))
}

const SECRETS: Kind = { group: '', resource: 'secrets' }

/** Returns the kind as kubectl names resources, such as `secrets` or `widgets.example.com`. */
const kindName = ({ group, resource }: Kind): string => (group === '' ? resource : `${resource}.${group}`)

function kindOf(name: string): Kind {
  const [resource = '', ...group] = name.split('.')
  return { resource, group: group.join('.') }
}
