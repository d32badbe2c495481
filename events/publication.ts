import type { ResourceRef } from '#contracts'
import { asMetadata, asReference, type ObjectEventInput, objectEvent } from './event.ts'
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

/** The event of an object as it travels, whole or as a reference. `metadataOnly`: nothing else of it is known. */
export function publicationOf(
  input: ObjectEventInput,
  rules: TravelRules,
  { metadataOnly }: { metadataOnly?: boolean | undefined } = {},
): Publication {
  const event = objectEvent(input)
  if (rules.isReferenceOnly(input.ref)) return referenceTo(event)
  if (metadataOnly) return encoded(asMetadata(event))
  const message = toNats(event)
  return message.data.length <= rules.maxObjectBytes ? { event, message } : referenceTo(event)
}

export const referenceTo = (event: ObjectEvent): Publication => encoded(asReference(event))

const encoded = (event: ObjectEvent): Publication => ({ event, message: toNats(event) })
