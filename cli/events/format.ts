import { namespacedName, resourceName } from '#contracts'
import type { StoredEvent } from '#events'
import { oneLine } from '#host/exit'
import { ownerOf } from '#spec'
import type { Format } from './options.ts'

/** Formats one event as one line: for people, for scripts, or as a CloudEvent in structured mode. */
export const formatted: Record<Format, (event: StoredEvent) => string> = {
  text: ({ event, verb, key, resourceVersion, ...stored }) =>
    [
      event.time,
      verb.padEnd(8),
      resourceName(key.ref),
      oneLine(namespacedName(key)),
      `version ${resourceVersion}`,
      ...notesOn({ event, verb, key, resourceVersion, ...stored }).map((note) => oneLine(note)),
    ].join('  '),
  json: ({ event, verb, key, owner, origin, sequence, resourceVersion, uid, referenceOnly, object }) =>
    JSON.stringify({
      time: event.time,
      verb,
      resource: resourceName(key.ref),
      namespace: key.namespace,
      name: key.name,
      uid,
      resourceVersion,
      owner: owner && `${owner.resource}/${owner.name}`,
      writtenBy: origin,
      sequence,
      referenceOnly,
      object,
    }),
  event: ({ event }) => JSON.stringify(event),
}

function notesOn({ object, origin, referenceOnly }: StoredEvent): string[] {
  const owner = ownerOf(object)
  const { phase } = (object.status ?? {}) as { phase?: unknown }
  return [
    ...(typeof phase === 'string' ? [phase] : []),
    ...(owner === undefined ? [] : [`of ${owner.kind} ${owner.name}`]),
    ...(object.metadata.deletionTimestamp === undefined ? [] : ['being deleted']),
    ...(origin === undefined ? [] : [`written by ${origin.split('/')[0]}`]),
    ...(referenceOnly ? ['reference only'] : []),
  ]
}
