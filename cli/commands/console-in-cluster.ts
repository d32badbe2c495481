import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import type { Logger } from 'pino'
import { createConsole, openData } from '#console'
import { createClusterAccess } from '#console/access'
import type { RequestReport } from '#kube'
import type { Config } from '#process/config'
import { UsageError, untilStopped } from '#process/exit'
import { openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import { createMetrics, listening, serveMetrics } from '#process/metrics'
import { createTlsServer } from '#process/tls-files'

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
  const health = { troubles: () => [] }
  const metrics = listen === undefined ? undefined : await serveMetrics(listen, registry, health)
  log.info({ url: served.url, writes: settings.FAIRLEAD_CONSOLE_WRITES }, 'the console is open')
  if (!signal.aborted) await once(signal, 'abort')
  metrics?.close()
}

const CONNECTIONS = 1024

interface InClusterOptions {
  /** `host:port`, or `:port` for every address. */
  address: string
  log: Logger
  onRequest?: (request: RequestReport) => void
}

interface InClusterConsole extends AsyncDisposable {
  /** The address of the console for users without a proxy. */
  url: string
}

/** Serves the console to users who sign in with a token of the API server. */
async function serveInCluster(
  settings: Config,
  { address, log, onRequest }: InClusterOptions,
): Promise<InClusterConsole> {
  const kube = await openKube(settings, onRequest)
  const data = openData(settings, log, { role: 'console', onRequest })
  const access = createClusterAccess({
    kube,
    hosts: settings.FAIRLEAD_CONSOLE_HOSTS,
    audiences: settings.FAIRLEAD_CONSOLE_AUDIENCES,
    instance: `${hostname()}-${process.pid}`.slice(-128),
    log,
  })
  const abilities = { writes: settings.FAIRLEAD_CONSOLE_WRITES }
  const shown = { name: settings.cluster, data, abilities, record: access.record }
  const { server, scheme } = await serverOf(settings, createConsole({ clusters: [shown], access, log }), log)
  server.maxConnections = CONNECTIONS
  const close = async (): Promise<void> => {
    server.close()
    server.closeAllConnections()
    await access.flush()
    await data.close()
    await kube.close()
  }
  try {
    await listening(server, address)
  } catch (error) {
    await close()
    throw error
  }
  const { port } = server.address() as AddressInfo
  return { url: `${scheme}://localhost:${port}`, [Symbol.asyncDispose]: close }
}

/**
 * Creates an HTTPS server if a certificate is configured, otherwise an HTTP server.
 */
async function serverOf(
  { FAIRLEAD_CONSOLE_CERT: certFile, FAIRLEAD_CONSOLE_KEY: keyFile }: Config,
  listener: RequestListener,
  log: Logger,
): Promise<{ server: Server; scheme: 'http' | 'https' }> {
  if ((certFile === undefined) !== (keyFile === undefined))
    throw new UsageError('FAIRLEAD_CONSOLE_CERT and FAIRLEAD_CONSOLE_KEY belong together: a certificate, and its key')
  if (certFile === undefined || keyFile === undefined) return { server: createServer(listener), scheme: 'http' }
  const { server } = await createTlsServer({ cert: certFile, key: keyFile }, log, listener)
  return { server, scheme: 'https' }
}
