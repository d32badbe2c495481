import { JetStreamApiError, type StreamInfo } from '@nats-io/jetstream'
import type { JetStream } from './client.ts'
import { ERR, isWrongSequence } from './errors.ts'

/** Thrown if a stream that this process uses was deleted or emptied, so that its messages are lost. */
export class StreamLostError extends Error {
  override readonly name = 'StreamLostError'
}

export interface Kept {
  stream: string
  /** The subject of one message that exists from the beginning. If it is missing, the stream was emptied. */
  mark: string
}

/**
 * Returns a function that names the present incarnation of the servers that keep these streams. Another name than
 * before means that confirmed messages may be lost. With replicas, the incarnation is the stream itself, as long as its
 * last sequence never falls below an earlier one. A stream without replicas is as safe as the page cache of its server,
 * so each start of that server counts. The function rejects with StreamLostError if a stream was replaced since the
 * first call. `marks`: creates the marks.
 */
export function incarnationOf(
  js: JetStream,
  streams: readonly Kept[],
  { marks }: { marks: boolean },
): () => Promise<string> {
  const lives = streams.map((kept) => lifeOf(js, kept, marks))
  const ask = async () => (await Promise.all(lives.map((life) => life()))).join(' ')
  // Only one request runs at a time. Otherwise the older answer could arrive last, and the stream would appear to have
  // fallen behind.
  let asking: Promise<string> | undefined
  // A request that was made without a connection is never answered.
  js.onReconnect(() => {
    asking = undefined
  })
  return () => {
    if (asking) return asking
    const mine = ask().finally(() => {
      if (asking === mine) asking = undefined
    })
    asking = mine
    return mine
  }
}

function lifeOf(js: JetStream, kept: Kept, marks: boolean): () => Promise<string> {
  const { stream } = kept
  let highest = 0
  let fallenBehind = 0
  let known: { created: string; mark: number | undefined } | undefined
  return async () => {
    const found = await findInfo(js, stream)
    if (found === undefined || (known && known.created !== found.created))
      throw new StreamLostError(`stream ${stream} was deleted: start again, and everything is listed and runs again`)
    const { config, created, state } = found
    const mark = await markOf(js, kept, marks && known?.mark === undefined)
    if (known?.mark !== undefined && known.mark !== mark)
      throw new StreamLostError(`stream ${stream} was emptied: start again, and everything is listed and runs again`)
    known = { created, mark }
    if (state.last_seq < highest) fallenBehind++
    highest = state.last_seq
    const keeper = config.num_replicas > 1 ? 'replicas' : (js.nc.info?.server_id ?? '')
    return [keeper, created, mark, ...(fallenBehind > 0 ? [fallenBehind] : [])].join(' ')
  }
}

async function findInfo(js: JetStream, stream: string): Promise<StreamInfo | undefined> {
  try {
    return await js.admin.streams.info(stream)
  } catch (error) {
    if (error instanceof JetStreamApiError && error.code === ERR.streamNotFound) return undefined
    throw error
  }
}

/** Returns the sequence of the mark. */
async function markOf(js: JetStream, { stream, mark }: Kept, makes: boolean): Promise<number | undefined> {
  const found = await js.lastOf(stream, mark)
  if (found !== undefined || !makes) return found?.sequence
  try {
    return (await js.publish(mark, '', { 'Nats-Expected-Last-Subject-Sequence': 0 })).sequence
  } catch (error) {
    if (!isWrongSequence(error)) throw error
    return (await js.lastOf(stream, mark))?.sequence
  }
}
