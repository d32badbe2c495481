import type { KubeObject } from '#contracts'
import type { StoredMessage } from '#jetstream'
import { verbOf } from './event.ts'
import { decodeHeaderValue, encodeHeaderValue } from './header-value.ts'
import { fromNats } from './nats-codec.ts'
import { PoisonEventError } from './poison.ts'
import { isShortened } from './subject-part.ts'
import { parseObjectSubject, type SubjectParts } from './subjects.ts'
import type { Identity, ObjectEvent, StoredEvent, StoredObject } from './types.ts'
import type { StoredCopy } from './version-conflict.ts'

const ORIGIN = 'fairlead-origin'
const TTL = 'Nats-TTL'
const SOLE = 'fairlead-sole'

/** Returns the headers that are stored besides those of the event. */
export const storeHeaders = (origin: string | undefined, ttlSeconds: number | undefined) => ({
  [ORIGIN]: origin === undefined ? undefined : encodeHeaderValue(origin),
  [TTL]: ttlSeconds === undefined ? undefined : `${ttlSeconds}s`,
})

/**
 * The header that marks a copy as the only one: when it was stored, no other copy of the object counted, and the object
 * had not recently left an owner.
 */
export const SOLE_HEADER = { [SOLE]: '1' } as const

/**
 * Returns the copy in a message, from its headers alone. Accepts any message: the version of a message that is not an
 * event of Fairlead does not compare with any other version.
 */
export function copyFrom({ subject, sequence, headers }: StoredMessage): StoredCopy {
  return {
    owner: subject.split('.').at(-2) ?? '',
    sequence,
    resourceVersion: headers['ce-resourceversion'] ?? '',
    verb: verbOf(headers['ce-type']) ?? 'modified',
    origin: originOf(headers),
    partial: headers['ce-dataref'] !== undefined,
    sole: headers[SOLE] !== undefined,
  }
}

/** Returns when EVENTS drops the message, in epoch milliseconds. Undefined: never. */
export function expiryOf({ storedAt, headers }: StoredMessage): number | undefined {
  const ttl = headers[TTL]
  return ttl === undefined ? undefined : storedAt + Number.parseInt(ttl, 10) * 1000
}

/** Whether the message has only apiVersion, kind and metadata of the object. */
export const isReference = ({ headers }: StoredMessage): boolean => headers['ce-dataref'] !== undefined

/** Returns the event in a message. `subject` is without the installation's prefix. Throws PoisonEventError. */
export function storedEventFrom(subject: string, message: StoredMessage): StoredEvent {
  const event = fromNats(message) as ObjectEvent
  const verb = verbOf(event.type)
  if (verb === undefined || !isObject(event.data) || typeof event.resourceversion !== 'string')
    throw new PoisonEventError(
      'no-cloudevent',
      `the message on ${subject} is ${event.type}, not the event of an object`,
    )
  return { ...storedObject(subject, message, event, event.data), verb, event }
}

/** Returns the identity of an object from the headers alone. */
export function identityFrom(subject: string, message: StoredMessage): Identity {
  const event = fromNats({ ...message, data: new Uint8Array() }) as ObjectEvent
  const { namespace, name } = keyOn(subject, event)
  const object: KubeObject = {
    apiVersion: event.apiversion,
    kind: event.kind,
    metadata: {
      name,
      ...(namespace === undefined ? undefined : { namespace }),
      uid: event.objectuid,
      resourceVersion: event.resourceversion,
    },
  }
  return { ...storedObject(subject, message, event, object), deleted: verbOf(event.type) === 'deleted' }
}

export function storedObject(
  subject: string,
  message: Pick<StoredMessage, 'sequence' | 'storedAt' | 'headers'>,
  event: ObjectEvent,
  object: KubeObject,
): StoredObject {
  const { owner, ...key } = keyOn(subject, event)
  return {
    key,
    owner,
    sequence: message.sequence,
    storedAt: message.storedAt,
    resourceVersion: event.resourceversion,
    uid: event.objectuid,
    origin: originOf(message.headers),
    traceparent: event.traceparent,
    referenceOnly: event.dataref !== undefined,
    object,
  }
}

/** Returns the parts of the subject, with the whole name if the subject has only a shortened name. */
function keyOn(subject: string, { name }: Partial<ObjectEvent>): SubjectParts {
  const parts = parseObjectSubject(subject)
  return name !== undefined && isShortened(parts.name) ? { ...parts, name } : parts
}

function originOf(headers: StoredMessage['headers']): string | undefined {
  const origin = headers[ORIGIN]
  return origin === undefined ? undefined : decodeHeaderValue(origin)
}

const isObject = (data: unknown): data is KubeObject =>
  typeof data === 'object' && data !== null && 'metadata' in data && typeof data.metadata === 'object'
