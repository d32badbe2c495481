import { pause } from '#primitives'
import type { JetStream } from './client.ts'
import { ConnectionClosedError, isPassing } from './errors.ts'
import type { FollowOptions } from './follow.ts'
import type { StoredMessage } from './messages.ts'

const PAUSE_MS = 250

/**
 * Reads matching messages in stream order for each subject, then every later one, until the signal aborts. Begins again
 * if the stream was set back. It polls four times a second with direct reads. follow() is quicker, but it creates a
 * consumer, and a user that may create consumers can make the server write to any subject.
 */
export async function* poll(
  js: JetStream,
  stream: string,
  subjects: readonly string[],
  signal: AbortSignal,
  start: FollowOptions['start'],
): AsyncGenerator<StoredMessage> {
  const first = typeof start === 'number' ? start + 1 : 1
  const since = start instanceof Date ? start : undefined
  const seen = new Map<string, number>()
  while (!signal.aborted) {
    try {
      const last = await js.lastSequence(stream)
      for (const subject of subjects) {
        const before = seen.get(subject)
        const from = before === undefined || before > last ? { first, since } : { first: before + 1 }
        for await (const message of js.scan(stream, subject, from)) {
          seen.set(subject, message.sequence)
          yield message
        }
      }
    } catch (error) {
      if (js.nc.isClosed()) throw new ConnectionClosedError(`cannot read ${stream}: the NATS connection is closed`)
      if (!isPassing(error)) throw error
    }
    await pause(PAUSE_MS, signal)
  }
}
