import {
  type ConsumerConfig,
  type ConsumerInfo,
  JetStreamApiError,
  type StreamConfig,
  type StreamInfo,
} from '@nats-io/jetstream'
import { TimeoutError } from 'nats'
import { retry } from '#primitives'
import type { JetStream } from './client.ts'
import { ERR, UnknownOutcomeError } from './errors.ts'

/** The pause between two requests when the answer comes at once. */
const PAUSE_MS = 250

/**
 * No limits: at a limit, the server would silently drop the oldest messages, which are the keys that have waited
 * longest and the objects that have not changed for longest.
 */
export const UNLIMITED = { max_msgs: -1, max_bytes: -1, max_age: 0 } as const

/** Thrown if the stream has as many consumers as its limit, or that of the account, permits. */
class TooManyConsumersError extends Error {
  override readonly name = 'TooManyConsumersError'
}

/** Thrown if a stream or consumer exists already with another configuration than this program needs. */
export class DeclarationMismatchError extends Error {
  override readonly name = 'DeclarationMismatchError'
}

interface DeclareOptions {
  /**
   * Whether an existing stream gets the number of replicas and the limit of consumers if its own are lower, and is no longer
   * compressed.
   */
  raiseReplicas?: boolean
  createdWith?: Partial<StreamConfig>
}

/**
 * Creates the stream if it does not exist, and returns its configuration. An existing stream must have every given
 * field, except `createdWith`, the number of replicas and the limit of consumers: `raiseReplicas` raises lower numbers
 * in place, and nothing lowers higher ones. Throws DeclarationMismatchError. Compression is taken off: after a kill, a
 * nats-server (2.15.3) cannot always read the end of a compressed stream, and then has no replica of it until it is repaired by hand.
 */
export async function declareStream(
  js: JetStream,
  config: Partial<StreamConfig> & { name: string },
  { raiseReplicas = false, createdWith = {} }: DeclareOptions = {},
): Promise<StreamConfig> {
  const { num_replicas = 1, max_consumers = -1, ...fixed } = config
  const what = `stream ${config.name}`
  const existing = (await findStream(js, config.name)) ?? (await createStream(js, what, { ...config, ...createdWith }))
  demandEqual(what, fixed, existing)
  const raised = {
    ...(existing.num_replicas < num_replicas && { num_replicas }),
    ...(existing.max_consumers < max_consumers && { max_consumers }),
    ...(existing.compression === 's2' && { compression: 'none' as const }),
  }
  if (!raiseReplicas || Object.keys(raised).length === 0) return existing
  return (await answered(js, what, () => js.admin.streams.update(config.name, raised))).config
}

/** Creates the stream. Another process may create it at the same time. */
async function createStream(
  js: JetStream,
  what: string,
  config: Partial<StreamConfig> & { name: string },
): Promise<StreamConfig> {
  try {
    return (await answered(js, what, () => js.admin.streams.add(config))).config
  } catch (error) {
    if (errCodeOf(error) !== ERR.streamNameInUse) throw error
    return (await infoOf(js, config.name)).config
  }
}

/** Whether confirmed writes may be missing on a replica. In a cluster, a stream can get replicas at any time. */
export const mayBeReplicated = (js: JetStream, replicas: number): boolean =>
  replicas > 1 || js.nc.info?.cluster !== undefined

/** Returns what the server knows of a stream. Undefined: it does not exist. */
export const findInfo = (js: JetStream, name: string): Promise<StreamInfo | undefined> =>
  orUndefined(infoOf(js, name), ERR.streamNotFound)

/** Returns the configuration of a stream. Undefined: it does not exist. */
export const findStream = async (js: JetStream, name: string): Promise<StreamConfig | undefined> =>
  (await findInfo(js, name))?.config

const infoOf = (js: JetStream, name: string) => answered(js, `stream ${name}`, () => js.admin.streams.info(name))

/**
 * Creates the durable consumer if it does not exist. An existing one must have every given field, except `createdWith`, and
 * `ack_wait`, which is changed in place. Throws DeclarationMismatchError.
 */
export async function declareConsumer(
  js: JetStream,
  stream: string,
  config: Partial<ConsumerConfig> & { durable_name: string },
  createdWith: Partial<ConsumerConfig> = {},
): Promise<void> {
  const { ack_wait, ...fixed } = config
  const what = `consumer ${config.durable_name} of stream ${stream}`
  const existing = await findConsumer(js, stream, config.durable_name)
  if (existing === undefined) {
    await answered(js, what, () => js.admin.consumers.add(stream, { ...config, ...createdWith })).catch(
      (error: unknown) => {
        if (errCodeOf(error) !== ERR.tooManyConsumers) throw error
        const fix = `raise max_consumers of the stream (nats stream edit ${stream} --max-consumers=100000) or of the account`
        throw new TooManyConsumersError(`NATS creates no ${what}: it has as many consumers as it may have: ${fix}`)
      },
    )
    return
  }
  demandEqual(what, fixed, existing.config)
  if (ack_wait === undefined || existing.config.ack_wait === ack_wait) return
  await answered(js, what, () => js.admin.consumers.update(stream, config.durable_name, { ack_wait }))
}

export function findConsumer(js: JetStream, stream: string, name: string): Promise<ConsumerInfo | undefined> {
  const what = `consumer ${name} of stream ${stream}`
  return orUndefined(
    answered(js, what, () => js.admin.consumers.info(stream, name)),
    ERR.consumerNotFound,
  )
}

/** Deletes a consumer, if it exists. Its messages stay in the stream. */
export async function removeConsumer(js: JetStream, stream: string, name: string): Promise<void> {
  const what = `consumer ${name} of stream ${stream}`
  await orUndefined(
    answered(js, what, () => js.admin.consumers.delete(stream, name)),
    ERR.consumerNotFound,
  )
}

/**
 * Repeats a request while the cluster elects its leader: it then does not answer, or answers that it is unavailable.
 * The request must be safe to repeat.
 */
function answered<T>(js: JetStream, what: string, ask: () => Promise<T>): Promise<T> {
  const until = performance.now() + js.patienceMs
  const pauseMs = (cause: unknown): number | undefined => {
    if (!(cause instanceof TimeoutError) && errCodeOf(cause) !== ERR.unavailable) return undefined
    const why = `NATS does not answer about ${what}: JetStream seems to be without a leader`
    if (performance.now() > until) throw new UnknownOutcomeError(why, { cause })
    return PAUSE_MS
  }
  return retry(ask, { pauseMs })
}

function demandEqual(what: string, wanted: object, found: object): void {
  for (const [field, value] of Object.entries(wanted)) {
    const present = (found as Record<string, unknown>)[field]
    if (JSON.stringify(present) === JSON.stringify(value)) continue
    throw new DeclarationMismatchError(
      `${what} exists with ${field} = ${JSON.stringify(present)}, but ${JSON.stringify(value)} is needed: ` +
        'delete or update it, or choose another prefix',
    )
  }
}

/** Returns undefined instead of this error of the API. */
export async function orUndefined<T>(promise: Promise<T>, errCode: number): Promise<T | undefined> {
  try {
    return await promise
  } catch (error) {
    if (errCodeOf(error) === errCode) return undefined
    throw error
  }
}

const errCodeOf = (error: unknown): number | undefined => (error instanceof JetStreamApiError ? error.code : undefined)
