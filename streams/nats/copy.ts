import type { StreamConfig, StreamInfo } from '@nats-io/jetstream'
import type { Msg } from 'nats'
import { retry } from '#primitives'
import type { JetStream } from './client.ts'
import { findInfo, findStream } from './declare.ts'
import { ERR, isPassing, JetStreamError, UnknownOutcomeError } from './errors.ts'
import { type StoredMessage, statusOf } from './messages.ts'

/** What the server reads ahead while the other one stores. */
const WINDOW_BYTES = 2 ** 20
/** The servers give up after 5 s without progress. */
const TIMEOUT_MS = 10_000
const PAUSE_MS = 250
/** In the metadata of a whole copy: `CREATED@SEQUENCE` of the other stream, with its last sequence at the snapshot. */
const COPY_OF = 'fairlead.dev/copy-of'

/** Thrown if the stream is there already, and is no whole copy of the other one as it is now. */
class StreamInTheWayError extends Error {
  override readonly name = 'StreamInTheWayError'
}

interface CopyOptions {
  replicas: 1 | 3
  /** How long the other servers may take to start, in milliseconds. */
  patienceMs: number
  /** Called with the size of each part of the stream, before it is stored. */
  onPart?: (bytes: number) => unknown
}

interface Copied {
  result: 'copied' | 'there is none' | 'was copied before'
  messages?: number
}

interface Snapshot {
  config: StreamConfig
  state: { last_seq: number }
}

/**
 * Copies a stream to other servers: its messages with their sequences and times, timers among them. Consumers are left
 * out, because processes declare them. Nobody but the server itself may change the stream meanwhile: its timers go on.
 */
export async function copyStream(
  from: JetStream,
  to: JetStream,
  stream: string,
  { replicas, patienceMs, onPart }: CopyOptions,
): Promise<Copied> {
  const original = await findInfo(from, stream)
  if (original === undefined) return { result: 'there is none' }
  const there = await findStream(to, stream)
  if (there !== undefined) {
    await demandCopy(from, original, there, patienceMs)
    return { result: 'was copied before' }
  }
  // First the servers that may be slow, because they start: the other one sends a snapshot only to a reader who keeps up.
  const copy = { config: { ...original.config, num_replicas: replicas }, state: original.state }
  const target = await patiently(patienceMs, () =>
    asked<{ deliver_subject: string }>(to, `$JS.API.STREAM.RESTORE.${stream}`, copy),
  )
  const { config, state, parts } = await snapshotOf(from, stream)
  const give = async (data: Uint8Array, timeout: number) =>
    errorIn(await to.nc.request(target.deliver_subject, data, { timeout }))
  for await (const part of parts) {
    await onPart?.(part.length)
    await give(part, TIMEOUT_MS)
  }
  // The answer comes when the servers have made the stream of all parts.
  await give(new Uint8Array(), Math.max(TIMEOUT_MS, patienceMs))
  await repeatFired(from, to, { stream, after: state.last_seq, patienceMs })
  await untilCurrent(to, stream, patienceMs)
  const copyOf = `${original.created}@${state.last_seq}`
  await to.admin.streams.update(stream, { metadata: { ...config.metadata, [COPY_OF]: copyOf } })
  return { result: 'copied', messages: (await to.admin.streams.info(stream)).state.messages }
}

/** Has the server send a snapshot. It sends the next part when the one before has been used. */
async function snapshotOf(js: JetStream, stream: string): Promise<Snapshot & { parts: AsyncIterable<Uint8Array> }> {
  const inbox = js.newInbox()
  const received = js.nc.subscribe(inbox)
  // The server sends the rest to nobody, and so never the end.
  const ignore = js.onDisconnect(() => received.unsubscribe())
  const wanted = { deliver_subject: inbox, no_consumers: true, window_size: WINDOW_BYTES }
  const snapshot = await asked<Snapshot>(js, `$JS.API.STREAM.SNAPSHOT.${stream}`, wanted)
  async function* parts(): AsyncGenerator<Uint8Array> {
    for await (const part of received) {
      const code = statusOf(part)
      if (code >= 400) throw new JetStreamError(`snapshot of ${stream}: ${part.headers?.description}`, code, 0)
      if (part.data.length === 0) return ignore()
      yield part.data
      if (part.reply) part.respond()
    }
    throw new UnknownOutcomeError(`snapshot of ${stream}: the connection to NATS dropped before its end`)
  }
  return { ...snapshot, parts: parts() }
}

/** Throws StreamInTheWayError unless the stream that is there is a whole copy of the original as it is now. */
async function demandCopy(
  from: JetStream,
  { created, config }: StreamInfo,
  there: StreamConfig,
  patienceMs: number,
): Promise<void> {
  const [of, last] = there.metadata?.[COPY_OF]?.split('@') ?? []
  const isWhole = of === created && last !== undefined
  if (isWhole && !(await hasGoneOn(from, config, Number(last), patienceMs))) return
  const why = isWhole ? 'is a copy of an earlier state: the old servers were used afterwards' : 'is no whole copy'
  const fix = 'delete the volumes of the new servers, and begin again'
  throw new StreamInTheWayError(`stream ${there.name} is there already, and ${why}: ${fix}`)
}

/**
 * Returns whether a process has stored messages after this sequence. A server that runs alone stores the firings of
 * timers, in WORK. Keys may have been taken from WORK since, so EVENTS is the sure sign: a bridge moves the cursors of its
 * watches there when it starts after NATS.
 */
async function hasGoneOn(
  js: JetStream,
  { name, allow_msg_schedules: hasTimers }: StreamConfig,
  after: number,
  patienceMs: number,
): Promise<boolean> {
  if (!hasTimers) return (await patiently(patienceMs, () => js.lastSequence(name))) !== after
  for await (const { headers } of messagesAfter(js, { stream: name, after, patienceMs }))
    if (headers['Nats-Scheduler'] === undefined) return true
  return false
}

/**
 * A timer that fired while the stream was read may be in no part: its message was gone, and that of its firing came after
 * the last sequence. The message of a firing removes the timer also if it is stored a second time, and takes the place of
 * another firing of that timer.
 */
async function repeatFired(from: JetStream, to: JetStream, after: After): Promise<void> {
  for await (const { subject, data, headers } of messagesAfter(from, after))
    await patiently(after.patienceMs, () => to.publish(subject, data, headers))
}

interface After {
  stream: string
  after: number
  patienceMs: number
}

/** Reads what the stream has behind this sequence now. */
async function* messagesAfter(js: JetStream, { stream, after, patienceMs }: After): AsyncGenerator<StoredMessage> {
  const last = await patiently(patienceMs, () => js.lastSequence(stream))
  for (let sequence = after + 1; sequence <= last; sequence++) {
    const message = await patiently(patienceMs, () => js.nextFrom(stream, sequence, '>', 'leader'))
    if (message === undefined || message.sequence > last) return
    sequence = message.sequence
    yield message
  }
}

/** The other servers of a cluster get the messages from the one that has stored them. */
function untilCurrent(js: JetStream, stream: string, patienceMs: number): Promise<void> {
  return patiently(patienceMs, async () => {
    const { cluster } = await js.admin.streams.info(stream)
    const isBehind = cluster?.replicas?.some(({ current }) => !current) ?? false
    if (isBehind) throw new JetStreamError(`not all servers have stream ${stream}`, 503, ERR.unavailable)
  })
}

async function asked<T>({ nc }: JetStream, subject: string, request: object): Promise<T> {
  return errorIn(await nc.request(subject, JSON.stringify(request), { timeout: TIMEOUT_MS })) as T
}

/** Returns the answer. Throws the error that it contains. */
function errorIn(answer: Msg): unknown {
  if (answer.data.length === 0) return undefined
  const { error, ...rest } = answer.json<{ error?: { code: number; err_code?: number; description: string } }>()
  if (error) throw new JetStreamError(`${answer.subject}: ${error.description}`, error.code, error.err_code ?? 0)
  return rest
}

/** Repeats what is safe to repeat, while servers are missing or slow. */
function patiently<T>(patienceMs: number, ask: () => Promise<T>): Promise<T> {
  const until = performance.now() + patienceMs
  const isMissing = (error: unknown) =>
    isPassing(error) || (error instanceof JetStreamError && error.errCode === ERR.noPeers)
  return retry(ask, { pauseMs: (error) => (isMissing(error) && performance.now() < until ? PAUSE_MS : undefined) })
}
