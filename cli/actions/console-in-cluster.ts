import { once } from 'node:events'
import type { Config } from '#host/config'
import { untilStopped } from '#host/exit'
import { createLogger } from '#host/logging'
import { createMetrics, serveMetrics } from '#host/metrics'
import { serveInCluster } from '../console/in-cluster.ts'

export interface ConsoleInClusterOptions {
  inCluster: string
  /** The address of metrics and health. */
  listen?: string
}

/** Serves the console of a cluster until the process is stopped. */
export async function consoleInCluster(
  settings: Config,
  { inCluster: address, listen }: ConsoleInClusterOptions,
): Promise<void> {
  const log = await createLogger(settings)
  const { signal } = untilStopped()
  const { registry, onRequest } = createMetrics()
  await using served = await serveInCluster(settings, { address, log, onRequest })
  // The process is healthy without NATS or the API server: the pages of the console show that these are unreachable.
  const health = { status: () => undefined, troubles: () => [] }
  const metrics = listen === undefined ? undefined : await serveMetrics(listen, registry, health)
  log.info({ url: served.url, writes: settings.FAIRLEAD_CONSOLE_WRITES }, 'the console is open')
  if (!signal.aborted) await once(signal, 'abort')
  metrics?.close()
}
