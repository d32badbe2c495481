import { type ConsumerConfig, JetStreamApiError, type StreamConfig } from '@nats-io/jetstream'
import type { JetStream } from './client.ts'
import { ERR } from './errors.ts'

/** A stream or consumer exists already and is not what this program needs. */
export class DeclarationMismatchError extends Error {
  override readonly name = 'DeclarationMismatchError'
}

/** Creates the stream if it is not there; what is there must agree in every field given. */
export async function declareStream(js: JetStream, config: Partial<StreamConfig> & { name: string }): Promise<void> {
  const existing = await findStream(js, config.name)
  if (existing) return demandEqual(`stream ${config.name}`, config, existing)
  try {
    await js.admin.streams.add(config)
  } catch (error) {
    if (errCodeOf(error) !== ERR.streamNameInUse) throw error
    demandEqual(`stream ${config.name}`, config, (await js.admin.streams.info(config.name)).config)
  }
}

/** Its configuration, if it is there. */
export async function findStream(js: JetStream, name: string): Promise<StreamConfig | undefined> {
  return (await orUndefined(js.admin.streams.info(name), ERR.streamNotFound))?.config
}

/** Creates the durable consumer if it is not there; what is there must agree in every field given. */
export async function declareConsumer(
  js: JetStream,
  stream: string,
  config: Partial<ConsumerConfig> & { durable_name: string },
): Promise<void> {
  const existing = await orUndefined(js.admin.consumers.info(stream, config.durable_name), ERR.consumerNotFound)
  if (existing) return demandEqual(`consumer ${config.durable_name} of stream ${stream}`, config, existing.config)
  await js.admin.consumers.add(stream, config)
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
