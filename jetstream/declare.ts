import { setTimeout as sleep } from 'node:timers/promises'
import { type ConsumerConfig, type ConsumerInfo, JetStreamApiError, type StreamConfig } from '@nats-io/jetstream'
import { TimeoutError } from 'nats'
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

/**
 * Creates the stream if it is not there; what is there must agree in every field given. Gives it as it is then. What it
 * is only created with need not agree.
 */
export async function declareStream(
  js: JetStream,
  config: Partial<StreamConfig> & { name: string },
  createdWith: Partial<StreamConfig> = {},
): Promise<StreamConfig> {
  const what = `stream ${config.name}`
  const existing = await findStream(js, config.name)
  if (existing) return demandEqual(what, config, existing)
  try {
    return (await answered(js, what, () => js.admin.streams.add({ ...config, ...createdWith }))).config
  } catch (error) {
    if (errCodeOf(error) !== ERR.streamNameInUse) throw error
    return demandEqual(what, config, (await infoOf(js, config.name)).config)
  }
}

/** Its configuration, if it is there. */
export async function findStream(js: JetStream, name: string): Promise<StreamConfig | undefined> {
  return (await orUndefined(infoOf(js, name), ERR.streamNotFound))?.config
}

const infoOf = (js: JetStream, name: string) => answered(js, `stream ${name}`, () => js.admin.streams.info(name))

/** Creates the durable consumer if it is not there; what is there must agree in every field given. */
export async function declareConsumer(
  js: JetStream,
  stream: string,
  config: Partial<ConsumerConfig> & { durable_name: string },
): Promise<void> {
  const what = `consumer ${config.durable_name} of stream ${stream}`
  const existing = await findConsumer(js, stream, config.durable_name)
  if (existing) demandEqual(what, config, existing.config)
  else await answered(js, what, () => js.admin.consumers.add(stream, config))
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
async function answered<T>(js: JetStream, what: string, ask: () => Promise<T>): Promise<T> {
  const until = performance.now() + js.patienceMs
  for (;;)
    try {
      return await ask()
    } catch (cause) {
      if (!(cause instanceof TimeoutError) && errCodeOf(cause) !== ERR.unavailable) throw cause
      const why = `NATS does not answer about ${what}: JetStream seems to be without a leader`
      if (performance.now() > until) throw new UnknownOutcomeError(why, { cause })
      await sleep(PAUSE_MS)
    }
}

function demandEqual<Found extends object>(what: string, wanted: object, found: Found): Found {
  for (const [field, value] of Object.entries(wanted)) {
    const present = (found as Record<string, unknown>)[field]
    if (JSON.stringify(present) === JSON.stringify(value)) continue
    throw new DeclarationMismatchError(
      `${what} exists with ${field} = ${JSON.stringify(present)}, but ${JSON.stringify(value)} is needed: ` +
        'delete or update it, or choose another prefix',
    )
  }
  return found
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
