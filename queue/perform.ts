import { setTimeout as sleep } from 'node:timers/promises'
import { type Delivery, ERR, isPassing, isWrongSequence, type JetStream, JetStreamError } from '#jetstream'
import { type Address, recordFrom, toWire } from './codec.ts'
import type { Answer, Io, Publish } from './record.ts'

export interface StreamAccess {
  js: JetStream
  random: () => number
  /** Called before each access to the stream. */
  onIo: ((io: Io, key: string) => void | Promise<void>) | undefined
}

/** Performs the IO of a machine on JetStream, and maps each outcome to one of the answers that machines know. */
export async function perform(io: Io, access: StreamAccess, address: Address, delivery?: Delivery): Promise<Answer> {
  if (access.onIo) await access.onIo(io, address.key)
  try {
    return await doIo(io, access.js, address, delivery)
  } catch (error) {
    return answerTo(error, access.random)
  }
}

async function doIo(io: Io, js: JetStream, address: Address, delivery: Delivery | undefined): Promise<Answer> {
  const { names, reconciler, key } = address
  switch (io.do) {
    case 'publish':
      return { kind: 'stored', sequence: await publish(io.message, js, address) }
    case 'readRecord': {
      const message = await js.lastOf(names.stream, names.records(reconciler, key))
      return { kind: 'record', record: message && recordFrom(message, names) }
    }
    case 'acknowledge':
      if (io.confirmed) await delivery?.ackConfirmed()
      else delivery?.ack()
      return { kind: 'acknowledged' }
    case 'removeToken':
      await js.remove(names.stream, io.sequence)
      return { kind: 'removed' }
    case 'readToken':
      return { kind: 'token', present: delivery ? await isStored(js, names.stream, delivery.sequence) : false }
  }
}

async function publish(message: Publish, js: JetStream, address: Address): Promise<number> {
  const { subject, payload, headers } = toWire(message, address)
  return (await js.publish(subject, payload, headers)).sequence
}

const isStored = async (js: JetStream, stream: string, sequence: number): Promise<boolean> =>
  (await js.bySequence(stream, sequence)) !== undefined

/**
 * Maps an error to an answer, after a pause if the machine will ask again. Rethrows errors that no repetition can
 * resolve.
 */
export async function answerTo(error: unknown, random: () => number): Promise<Answer> {
  if (isWrongSequence(error)) return { kind: 'conflict' }
  if (error instanceof JetStreamError && error.errCode === ERR.publishInFlight) {
    await sleep(1 + 4 * random())
    return { kind: 'busy' }
  }
  if (isPassing(error)) {
    await sleep(20 + 50 * random())
    return { kind: 'unknown' }
  }
  throw error
}
