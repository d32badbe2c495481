import { DeliverPolicy, jetstream } from '@nats-io/jetstream'
import type { JetStream } from './client.ts'
import { plainHeaders } from './headers.ts'
import type { StoredMessage } from './messages.ts'

/**
 * The last message of each subject that matches, then every later one, in stream order, for ever; ends with the
 * signal. On more than one replica the start may be older than what was just stored; what is missing follows.
 */
export async function* follow(
  js: JetStream,
  stream: string,
  subjects: string[],
  signal: AbortSignal,
  { headersOnly = false }: { headersOnly?: boolean } = {},
): AsyncGenerator<StoredMessage> {
  const consumer = await jetstream(js.nc).consumers.get(stream, {
    filter_subjects: subjects,
    deliver_policy: DeliverPolicy.LastPerSubject,
    headers_only: headersOnly,
  })
  const messages = await consumer.consume()
  const stop = () => messages.stop()
  signal.addEventListener('abort', stop, { once: true })
  try {
    if (signal.aborted) return
    for await (const message of messages) {
      yield {
        subject: message.subject,
        sequence: message.seq,
        storedAt: message.info.timestampNanos / 1e6,
        headers: plainHeaders(message.headers),
        data: message.data,
      }
    }
  } finally {
    signal.removeEventListener('abort', stop)
    await messages.close()
    // Without an answer the server drops it by itself after a while.
    await consumer.delete().catch(() => false)
  }
}
