import type { ResourceRef } from '#contracts'
import { asBareReference, asMetadata, asReference, type ObjectEventInput, objectEvent } from './event.ts'
import { type NatsMessage, toNats } from './nats-codec.ts'
import type { ObjectEvent } from './types.ts'

/** Larger objects travel as references. */
export const MAX_OBJECT_BYTES = 512 * 1024

export interface TravelRules {
  isReferenceOnly: (ref: Pick<ResourceRef, 'group' | 'resource'>) => boolean
  maxObjectBytes: number
}

export interface Publication {
  event: ObjectEvent
  message: NatsMessage
}

interface Known {
  /** True: only the metadata of the object are known. */
  metadataOnly?: boolean | undefined
  /** True: a Reconciler needs the last state of a deleted object. */
  lastState?: boolean | undefined
}

/**
 * Returns the event of an object as it travels, whole or as a reference. The event of a deletion has only metadata,
 * unless the last state is needed.
 */
export function publicationOf(
  input: ObjectEventInput,
  rules: TravelRules,
  { metadataOnly, lastState }: Known = {},
): Publication {
  const event = objectEvent(input)
  if (rules.isReferenceOnly(input.ref)) return referenceTo(event, rules)
  const isPartial = metadataOnly || (input.verb === 'deleted' && !lastState)
  const publication = encodedIfFlat(isPartial ? asMetadata(event) : event)
  return publication !== undefined && mayTravel(publication, rules) ? publication : referenceTo(event, rules)
}

/**
 * Returns the encoded event. Undefined: the object is nested too deeply for JSON.stringify(), whose stack ends at some
 * thousand levels. The API server accepts 10,000 levels in fields whose schema preserves unknown fields; metadata have
 * no such fields.
 */
function encodedIfFlat(event: ObjectEvent): Publication | undefined {
  try {
    return encoded(event)
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

/**
 * Returns the reference to an object. If its metadata exceed the limit, the reference has only the identifying
 * metadata.
 */
export function referenceTo(event: ObjectEvent, rules: Pick<TravelRules, 'maxObjectBytes'>): Publication {
  const reference = encoded(asReference(event))
  return mayTravel(reference, rules) ? reference : encoded(asBareReference(event))
}

const encoded = (event: ObjectEvent): Publication => ({ event, message: toNats(event) })

const mayTravel = ({ message }: Publication, { maxObjectBytes }: Pick<TravelRules, 'maxObjectBytes'>): boolean =>
  message.data.length <= maxObjectBytes
