import { setTimeout as sleep } from 'node:timers/promises'
import { type ConsumerConfig, JetStreamApiError } from '@nats-io/jetstream'
import { PermissionViolationError } from 'nats'
import type { JetStream } from './client.ts'
import { ConnectionClosedError } from './errors.ts'
import { Feed, HEARTBEAT_MS } from './feed.ts'
import { plainHeaders } from './headers.ts'
import { ackMetadata, type StoredMessage } from './messages.ts'

const PAUSE_MS = 200
/** The server forgets a consumer that nobody has listened to for so long. */
const UNUSED_MS = 30_000

export interface FollowOptions {
  headersOnly?: boolean
  /** Left out: with the last message of each subject. Else with what was stored then or later, or behind that sequence. */
  start?: Date | number | undefined
}

/**
 * The last message of each subject that matches, then every later one, in stream order, for ever; ends with the
 * signal. Goes on where it was after a lost connection or server, and begins anew where the server has lost what it gave.
 * On more than one replica the start may be older than what was just stored; what is missing follows.
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

/** Its name; undefined, after a pause, when the server could not do it now, was away when it was asked, or the signal came. */
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
