import { once } from 'node:events'
import { copyStream } from '#nats'
import type { Config } from '#process/config'
import { retryWhileUnreachable } from '#process/connections'
import { untilStopped } from '#process/exit'
import { createLogger } from '#process/logging'
import { createMetrics, serveMetrics } from '#process/metrics'
import { openJetStream } from '#process/nats'

export interface CopyStreamsOptions {
  from: string
  listen?: string
  waitSeconds: number
}

/** RUNS last: it may be large, and runs do not depend on it. */
const STREAMS = ['EVENTS', 'WORK', 'DEAD', 'RUNS']

/** Copies all streams of another NATS. With an address to listen on, the process is ready after that, and stays. */
export async function copyStreams(config: Config, { from, listen, waitSeconds }: CopyStreamsOptions): Promise<void> {
  const log = await createLogger(config)
  const { signal } = untilStopped()
  const stopped = once(signal, 'abort').then(() => 'stopped' as const)
  let missing = STREAMS
  const troubles = () => missing.map((stream) => `${stream} is not copied yet`)
  const { registry } = createMetrics()
  const server =
    listen === undefined ? undefined : await serveMetrics(listen, registry, { status: () => undefined, troubles })
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
    for (const name of STREAMS) {
      const stream = config.FAIRLEAD_PREFIX === undefined ? name : `${config.FAIRLEAD_PREFIX}_${name}`
      log.info({ stream, ...(await copyStream(old, js, stream, options)) }, 'the stream is here')
      missing = missing.filter((one) => one !== name)
    }
    log.info({ from, to: config.NATS_URL }, 'all streams are copied')
    return 'copied' as const
  }
  const end = await Promise.race([copyAll(), stopped])
  if (end === 'copied' && server !== undefined) await stopped
  server?.close()
  if (end === 'stopped') throw signal.reason
}
