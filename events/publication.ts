import type { ResourceRef } from '#contracts'
import { asBareReference, asMetadata, asReference, type ObjectEventInput, objectEvent } from './event.ts'
import { type NatsMessage, toNats } from './nats-codec.ts'
import type { ObjectEvent } from './types.ts'

/** Objects beyond travel as references. */
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
  /** Nothing but metadata is known of the object. */
  metadataOnly?: boolean | undefined
  /** Somebody needs to know what an object was like that is deleted. */
  lastState?: boolean | undefined
}

/** The event of an object as it travels, whole or as a reference. A deletion has metadata, unless it is to show more. */
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
 * Undefined: it is nested too deeply for JSON.stringify(), whose stack ends at some thousand levels. The API server takes
 * 10,000, of fields whose schema preserves what it does not know; metadata have none of these.
 */
function encodedIfFlat(event: ObjectEvent): Publication | undefined {
  try {
    return encoded(event)
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

/** Bare where the metadata alone are over the limit. */
export function referenceTo(event: ObjectEvent, rules: Pick<TravelRules, 'maxObjectBytes'>): Publication {
  const reference = encoded(asReference(event))
  return mayTravel(reference, rules) ? reference : encoded(asBareReference(event))
}

const encoded = (event: ObjectEvent): Publication => ({ event, message: toNats(event) })

const mayTravel = ({ message }: Publication, { maxObjectBytes }: Pick<TravelRules, 'maxObjectBytes'>): boolean =>
  message.data.length <= maxObjectBytes
