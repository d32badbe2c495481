import { setTimeout as sleep } from 'node:timers/promises'
import { type ConsumerConfig, JetStreamApiError } from '@nats-io/jetstream'
import { PermissionViolationError } from 'nats'
import type { JetStream } from './client.ts'
import { ConnectionClosedError } from './errors.ts'
import { Feed, HEARTBEAT_MS } from './feed.ts'
import { plainHeaders } from './headers.ts'
import { ackMetadata, type StoredMessage } from './messages.ts'

const PAUSE_MS = 200
/** How long the server keeps a consumer that has no listener. */
const UNUSED_MS = 30_000

export interface FollowOptions {
  headersOnly?: boolean
  /**
   * Left out: begins with the last message of each subject. A date: begins with messages stored then or later. A
   * number: begins behind that sequence.
   */
  start?: Date | number | undefined
}

/**
 * Follows a stream: the last message of each matching subject, then every later one, in stream order, until the signal
 * aborts. After a lost connection or server it continues from its position, and it begins again if the server has lost
 * messages that it has sent. With more than one replica, the start may be older than messages that were just stored;
 * the missing ones follow.
 */
export async function* follow(
  js: JetStream,
  stream: string,
  subjects: string[],
  signal: AbortSignal,
  { headersOnly = false, start }: FollowOptions = {},
): AsyncGenerator<StoredMessage> {
  for (let last = 0; !signal.aborted; ) {
    if (js.nc.isClosed()) throw new ConnectionClosedError(`cannot follow ${stream}: the NATS connection is closed`)
    const feed = new Feed(js, signal)
    const wanted = { filter_subjects: subjects, headers_only: headersOnly, deliver_subject: feed.inbox }
    const consumer = await addConsumer(js, stream, { ...wanted, ...startAfter(last, start) }, signal)
    const isLost = last > 0 && (await js.lastSequence(stream).catch(() => last)) < last
    if (isLost) last = 0
    if (consumer === undefined || isLost) feed.close()
    try {
      for await (const message of feed) {
        const { sequence, storedAt } = ackMetadata(message.reply ?? '')
        last = sequence
        const { subject, data } = message
        yield { subject, sequence, storedAt, headers: plainHeaders(message), data }
      }
    } finally {
      feed.close()
      if (consumer !== undefined) void js.admin.consumers.delete(stream, consumer).catch(() => false)
    }
  }
}

function startAfter(last: number, start: FollowOptions['start']): Partial<ConsumerConfig> {
  if (last > 0) return { deliver_policy: 'by_start_sequence', opt_start_seq: last + 1 }
  if (start instanceof Date) return { deliver_policy: 'by_start_time', opt_start_time: start.toISOString() }
  if (start === undefined) return { deliver_policy: 'last_per_subject' }
  return { deliver_policy: 'by_start_sequence', opt_start_seq: start + 1 }
}

/**
 * Creates a consumer and returns its name. Undefined, after a pause: the server could not create it, was unavailable,
 * or the signal aborted.
 */
async function addConsumer(
  js: JetStream,
  stream: string,
  config: Partial<ConsumerConfig>,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { promise: tooLate, resolve } = Promise.withResolvers<undefined>()
  const giveUp = () => resolve(undefined)
  const forget = js.onReconnect(giveUp)
  signal.addEventListener('abort', giveUp, { once: true })
  const added = js.admin.consumers.add(stream, {
    ...config,
    ack_policy: 'none',
    mem_storage: true,
    num_replicas: 1,
    flow_control: true,
    idle_heartbeat: HEARTBEAT_MS * 1e6,
    inactive_threshold: UNUSED_MS * 1e6,
  })
  try {
    return await Promise.race([added.then(({ name }) => name), tooLate])
  } catch (error) {
    if (error instanceof JetStreamApiError && error.status < 500) throw error
    if (error instanceof PermissionViolationError) throw error
    await sleep(PAUSE_MS)
    return undefined
  } finally {
    forget()
    signal.removeEventListener('abort', giveUp)
  }
}
