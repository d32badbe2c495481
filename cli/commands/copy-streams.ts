import { once } from 'node:events'
import { copyStream } from '#nats'
import type { Config } from '#process/config'
import { retryWhileUnreachable } from '#process/connections'
import { UsageError, untilStopped } from '#process/exit'
import { createLogger } from '#process/logging'
import { createMetrics, serveMetrics } from '#process/metrics'
import { openJetStream, streamsOf } from '#process/nats'

export interface CopyStreamsOptions {
  from: string
  listen?: string
  waitSeconds: number
}

/** RUNS and USAGE last: runs do not depend on them, and RUNS may be large. */
const STREAMS = ['EVENTS', 'WORK', 'DEAD', 'RUNS', 'USAGE']

/** Copies all streams of another NATS. With an address to listen on, the process is ready after that, and stays. */
export async function copyStreams(config: Config, { from, listen, waitSeconds }: CopyStreamsOptions): Promise<void> {
  const log = await createLogger(config)
  const { signal } = untilStopped()
  const stopped = once(signal, 'abort').then(() => 'stopped' as const)
  let missing = STREAMS
  const troubles = () => missing.map((stream) => `${stream} is not copied yet`)
  const { registry } = createMetrics()
  const server = listen === undefined ? undefined : await serveMetrics(listen, registry, { troubles })
  const open = (one: Config) => retryWhileUnreachable(waitSeconds, log, () => openJetStream(one, 'bridge'))
  const copyAll = async () => {
    await using old = await open({
      ...config,
      NATS_URL: from,
      NATS_CA: undefined,
      NATS_CERT: undefined,
      NATS_KEY: undefined,
    })
    await using js = await open(config)
    const options = { replicas: config.FAIRLEAD_REPLICAS, patienceMs: waitSeconds * 1000 }
    const streams = streamsOf(config, STREAMS)
    let found = 0
    for (const [index, stream] of streams.entries()) {
      const copied = await copyStream(old, js, stream, options)
      const isThere = copied.result !== 'there is none'
      if (isThere) found++
      log.info({ stream, ...copied }, isThere ? 'the stream is here' : 'there is no such stream to copy')
      // Without any stream, nothing has been copied.
      if (found > 0) missing = STREAMS.slice(index + 1)
    }
    if (found === 0)
      throw new UsageError(
        `--from is ${old.nc.getServer()}, which has none of the streams ${streams.join(', ')}: ` +
          'give the address of the NATS that bridges have used, and FAIRLEAD_PREFIX as they have it',
      )
    log.info({ from, to: config.NATS_URL }, 'all streams are copied')
    return 'copied' as const
  }
  const end = await Promise.race([copyAll(), stopped])
  if (end === 'copied' && server !== undefined) await stopped
  server?.close()
  if (end === 'stopped') throw signal.reason
}
