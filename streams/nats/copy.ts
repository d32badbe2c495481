import type { StreamConfig } from '@nats-io/jetstream'
import type { Msg } from 'nats'
import { retry } from '#primitives'
import type { JetStream } from './client.ts'
import { findStream } from './declare.ts'
import { ERR, isPassing, JetStreamError } from './errors.ts'
import { statusOf } from './messages.ts'

/** What the server reads ahead while the other one stores. */
const WINDOW_BYTES = 2 ** 20
/** The servers give up after 5 s without progress. */
const TIMEOUT_MS = 10_000
const PAUSE_MS = 250
/** In the metadata of a whole copy: when the stream that it is a copy of was created. */
const COPY_OF = 'fairlead.dev/copy-of'

/** Thrown if the stream is there already, and is no whole copy. */
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
  if ((await findStream(from, stream)) === undefined) return { result: 'there is none' }
  const { created } = await from.admin.streams.info(stream)
  const there = await findStream(to, stream)
  if (there?.metadata?.[COPY_OF] === created) return { result: 'was copied before' }
  if (there !== undefined)
    throw new StreamInTheWayError(
      `stream ${stream} is there already, and is no whole copy: delete the volumes of the new servers, and begin again`,
    )
  const inbox = from.newInbox()
  const parts = from.nc.subscribe(inbox)
  const wanted = { deliver_subject: inbox, no_consumers: true, window_size: WINDOW_BYTES }
  const { config, state } = await asked<Snapshot>(from, `$JS.API.STREAM.SNAPSHOT.${stream}`, wanted)
  const copy = { ...config, num_replicas: replicas }
  const target = await patiently(patienceMs, () =>
    asked<{ deliver_subject: string }>(to, `$JS.API.STREAM.RESTORE.${stream}`, { config: copy, state }),
  )
  const give = async (data: Uint8Array) =>
    errorIn(await to.nc.request(target.deliver_subject, data, { timeout: TIMEOUT_MS }))
  for await (const part of parts) {
    const code = statusOf(part)
    if (code >= 400) throw new JetStreamError(`snapshot of ${stream}: ${part.headers?.description}`, code, 0)
    if (part.data.length === 0) break
    await onPart?.(part.data.length)
    await give(part.data)
    if (part.reply) part.respond()
  }
  await give(new Uint8Array())
  await repeatFired(from, to, { stream, after: state.last_seq, patienceMs })
  await untilCurrent(to, stream, patienceMs)
  await to.admin.streams.update(stream, { metadata: { ...config.metadata, [COPY_OF]: created } })
  return { result: 'copied', messages: (await to.admin.streams.info(stream)).state.messages }
}

/**
 * A timer that fired while the stream was read may be in no part: its message was gone, and that of its firing came after
 * the last sequence. The message of a firing removes the timer also if it is stored a second time, and takes the place of
 * another firing of that timer.
 */
async function repeatFired(
  from: JetStream,
  to: JetStream,
  { stream, after, patienceMs }: { stream: string; after: number; patienceMs: number },
): Promise<void> {
  const last = await patiently(patienceMs, () => from.lastSequence(stream))
  for (let sequence = after + 1; sequence <= last; sequence++) {
    const fired = await patiently(patienceMs, () => from.nextFrom(stream, sequence, '>', 'leader'))
    if (fired === undefined || fired.sequence > last) return
    sequence = fired.sequence
    await patiently(patienceMs, () => to.publish(fired.subject, fired.data, fired.headers))
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
