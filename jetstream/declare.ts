import { type ConsumerConfig, type ConsumerInfo, JetStreamApiError, type StreamConfig } from '@nats-io/jetstream'
import { TimeoutError } from 'nats'
import { retry } from '#primitives'
import type { JetStream } from './client.ts'
import { ERR, UnknownOutcomeError } from './errors.ts'

/** Between two questions where the answer comes at once. */
const PAUSE_MS = 250

/** With a limit, the oldest messages would go without a word: what waits longest, what has not changed for longest. */
export const UNLIMITED = { max_msgs: -1, max_bytes: -1, max_age: 0 } as const

/** A stream or consumer exists already and is not what this program needs. */
export class DeclarationMismatchError extends Error {
  override readonly name = 'DeclarationMismatchError'
}

interface DeclareOptions {
  raiseReplicas?: boolean | undefined
  createdWith?: Partial<StreamConfig>
}

/**
 * Creates the stream if it does not exist. An existing stream must agree in every field given, except that it may have
 * another number of replicas: `raiseReplicas` raises a lower number in place, and nothing lowers a higher one. It need not
 * agree in what it is only created with. Returns the configuration after that.
 */
export async function declareStream(
  js: JetStream,
  config: Partial<StreamConfig> & { name: string },
  { raiseReplicas = false, createdWith = {} }: DeclareOptions = {},
): Promise<StreamConfig> {
  const { num_replicas: wish = 1, ...fixed } = config
  const what = `stream ${config.name}`
  const existing = (await findStream(js, config.name)) ?? (await createStream(js, what, { ...config, ...createdWith }))
  demandEqual(what, fixed, existing)
  if (!raiseReplicas || existing.num_replicas >= wish) return existing
  return (await answered(js, what, () => js.admin.streams.update(config.name, { num_replicas: wish }))).config
}

/** Another process may create it at the same time. */
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

/** With replicas, confirmed writes are not yet everywhere. In a cluster, a stream can get replicas at any time. */
export const mayBeReplicated = (js: JetStream, replicas: number): boolean =>
  replicas > 1 || js.nc.info?.cluster !== undefined

/** Its configuration, if it is there. */
export async function findStream(js: JetStream, name: string): Promise<StreamConfig | undefined> {
  return (await orUndefined(infoOf(js, name), ERR.streamNotFound))?.config
}

const infoOf = (js: JetStream, name: string) => answered(js, `stream ${name}`, () => js.admin.streams.info(name))

/**
 * Creates the durable consumer if it does not exist. An existing one must agree in every field given, except `ack_wait`,
 * which is changed in place.
 */
export async function declareConsumer(
  js: JetStream,
  stream: string,
  config: Partial<ConsumerConfig> & { durable_name: string },
): Promise<void> {
  const { ack_wait, ...fixed } = config
  const what = `consumer ${config.durable_name} of stream ${stream}`
  const existing = await findConsumer(js, stream, config.durable_name)
  if (existing === undefined) {
    await answered(js, what, () => js.admin.consumers.add(stream, config))
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

/** A cluster that chooses its leader does not answer, or says that it cannot: to ask again does no harm. */
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

async function orUndefined<T>(promise: Promise<T>, errCode: number): Promise<T | undefined> {
  try {
    return await promise
  } catch (error) {
    if (errCodeOf(error) === errCode) return undefined
    throw error
  }
}

const errCodeOf = (error: unknown): number | undefined => (error instanceof JetStreamApiError ? error.code : undefined)
