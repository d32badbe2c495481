import { JetStreamApiError } from '@nats-io/jetstream'
import { type ResourceRef, type RunLog, resourceName } from '#contracts'
import { ERR, type FollowOptions, type JetStream, poll, type StoredMessage } from '#nats'
import { PoisonEventError } from './cloudevent.ts'
import { storedEventFrom } from './event.ts'
import { streamNames } from './stream.ts'
import { cursorSubject, type ObjectFilter, objectFilter, parseCursorSubject } from './subjects.ts'
import type { StoredEvent } from './types.ts'

/** Thrown if no stream exists under these names. */
export class NoEventsError extends Error {
  override readonly name = 'NoEventsError'
}

/**
 * EVENTS for readers outside of the bridge and dispatchers. It declares nothing, writes nothing, and does not use the
 * API server.
 */
export interface EventsView {
  /**
   * Returns the resources that bridges watch, as far as they have cursors. Throws NoEventsError if the stream does not
   * exist.
   */
  resources(): Promise<ResourceRef[]>
  /**
   * Returns for how long no bridge has moved the cursor of the resource, by the clock of the server, in milliseconds. A
   * bridge that watches moves it every minute, and during a list not at all. Undefined: there is no cursor.
   */
  quietMs(ref: ResourceRef, namespace: string | undefined): Promise<number | undefined>
  /** Returns the last sequence: later events have a higher one. */
  end(): Promise<number>
  /** Iterates over the last event of each matching object, in stream order per filter. */
  stored(filters: readonly ObjectFilter[], since?: Date): AsyncIterable<StoredEvent>
  /**
   * Iterates over every matching event from `start` on, until the signal aborts. Events that have been overwritten
   * meanwhile are left out.
   */
  follow(
    filters: readonly ObjectFilter[],
    start: FollowOptions['start'],
    signal: AbortSignal,
  ): AsyncIterable<StoredEvent>
}

export function viewEvents(js: JetStream, { prefix, log }: { prefix?: string; log: RunLog }): EventsView {
  const { stream, root } = streamNames(prefix)
  const subjectOf = (filter: ObjectFilter) => root + objectFilter(filter)

  async function* read(messages: AsyncIterable<StoredMessage>): AsyncGenerator<StoredEvent> {
    for await (const message of messages) {
      try {
        yield storedEventFrom(message.subject.slice(root.length), message)
      } catch (error) {
        if (!(error instanceof PoisonEventError)) throw error
        log.warn({ err: error, subject: message.subject }, 'a message in EVENTS is not the event of an object')
      }
    }
  }

  return {
    async resources() {
      const options = { subjects_filter: `${root}cursor.*.*.*.*` }
      const { state } = await js.admin.streams.info(stream, options).catch((cause: unknown) => {
        if (!(cause instanceof JetStreamApiError) || cause.code !== ERR.streamNotFound) throw cause
        const message = `there is no stream ${stream} here: has a bridge run with this NATS and this prefix?`
        throw new NoEventsError(message, { cause })
      })
      const refs = Object.keys(state.subjects ?? {}).map(
        (subject) => parseCursorSubject(subject.slice(root.length)).ref,
      )
      return refs.sort((a, b) => resourceName(a).localeCompare(resourceName(b)))
    },
    async quietMs(ref, namespace) {
      const scopes = namespace === undefined ? [undefined] : [undefined, namespace]
      const found = await Promise.all(scopes.map((scope) => js.lastOf(stream, root + cursorSubject(ref, scope))))
      const moved = found.flatMap((cursor) => cursor?.storedAt ?? [])
      if (moved.length === 0) return undefined
      const { ts } = await js.admin.streams.info(stream)
      return ts === undefined ? undefined : Math.max(0, Date.parse(ts) - Math.max(...moved))
    },
    end: () => js.lastSequence(stream),
    async *stored(filters, since) {
      for (const filter of filters) yield* read(js.scan(stream, subjectOf(filter), { since }))
    },
    follow: (filters, start, signal) => read(poll(js, stream, filters.map(subjectOf), signal, start)),
  }
}
