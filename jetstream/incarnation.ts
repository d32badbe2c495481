import type { JetStream } from './client.ts'

/**
 * Names the present life of whatever keeps this stream; another answer than before means that confirmed messages may
 * be lost. With replicas that is the stream itself, as long as its sequences never fall behind those seen; a stream
 * without replicas is as safe as the page cache of its server, so each start of that server counts.
 */
export function incarnationOf(js: JetStream, stream: string): () => Promise<string> {
  let highest = 0
  let fallenBehind = 0
  const ask = async () => {
    const { config, created, state } = await js.admin.streams.info(stream)
    if (state.last_seq < highest) fallenBehind++
    highest = state.last_seq
    const keeper = config.num_replicas > 1 ? 'replicas' : (js.nc.info?.server_id ?? '')
    return [keeper, created, ...(fallenBehind > 0 ? [fallenBehind] : [])].join(' ')
  }
  // One question at a time: of two, the older answer may come last, and would look like a stream that has fallen behind.
  let asking: Promise<string> | undefined
  // What was asked without a connection is not answered.
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
