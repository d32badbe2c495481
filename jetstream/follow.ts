import { DeliverPolicy, jetstream } from '@nats-io/jetstream'
import type { JetStream } from './client.ts'
import { plainHeaders } from './headers.ts'
import type { StoredMessage } from './messages.ts'

/**
 * The last message of each subject that matches, then every later one, in stream order, for ever; ends with the
 * signal. `caughtUp` is called once, when what was stored at the start has been given.
 */
export async function* follow(
  js: JetStream,
  stream: string,
  subject: string,
  signal: AbortSignal,
  caughtUp?: () => void,
): AsyncGenerator<StoredMessage> {
  const consumer = await jetstream(js.nc).consumers.get(stream, {
    filter_subjects: [subject],
    deliver_policy: DeliverPolicy.LastPerSubject,
  })
  if ((await consumer.info()).num_pending === 0) caughtUp?.()
  const messages = await consumer.consume()
  const stop = () => messages.stop()
  signal.addEventListener('abort', stop, { once: true })
  try {
    if (signal.aborted) return
    for await (const message of messages) {
      yield {
        subject: message.subject,
        sequence: message.seq,
        headers: plainHeaders(message.headers),
        data: message.data,
      }
      if (message.info.pending === 0) caughtUp?.()
    }
  } finally {
    signal.removeEventListener('abort', stop)
    await messages.close()
  }
}
