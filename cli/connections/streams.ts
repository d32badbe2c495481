import { homedir, hostname } from 'node:os'
import { PermissionViolationError } from 'nats'
import type { Logger } from 'pino'
import { type DeadLetters, type EventStore, openDeadLetters, openEventStore } from '#events'
import { connectJetStream, type JetStream } from '#jetstream'
import {
  createKubeClient,
  type KubeClient,
  kubeConfigPaths,
  loadInCluster,
  loadKubeConfig,
  type RequestReport,
  resourcePath,
} from '#kube'
import { NoQueueError, openQueue, type QueueObserver, type QueueOptions, type WorkQueue } from '#queue'
import type { Config } from './config.ts'
import { UsageError } from './exit.ts'
import { version } from './version.ts'

const NAMESPACES = { group: '', version: 'v1', resource: 'namespaces' }

/** The API server of the kubeconfig; in a pod that has none, of the pod's own cluster. */
export async function openKube(config: Config, onRequest?: (request: RequestReport) => void): Promise<KubeClient> {
  const { KUBECONFIG, KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = config
  const access =
    KUBECONFIG === undefined && host !== undefined && port !== undefined
      ? await loadInCluster({ host, port, now: Date.now })
      : await loadKubeConfig({ paths: kubeConfigPaths(KUBECONFIG, homedir()), context: config.context })
  return createKubeClient({
    ...access,
    userAgent: `fairlead/${version} (${process.platform}/${process.arch})`,
    onRequest,
  })
}

export interface Streams extends AsyncDisposable {
  js: JetStream
  events: EventStore
  queue: WorkQueue
  dead: DeadLetters
}

/** EVENTS, WORK and DEAD, created on first use. */
export async function openStreams(
  config: Config,
  kube: KubeClient,
  role: string,
  log: Logger,
  { slots, observer }: { /** Keys held at once. */ slots?: number | undefined; observer?: QueueObserver } = {},
): Promise<Streams> {
  const cluster = config.FAIRLEAD_CLUSTER ?? (await clusterId(kube))
  const js = await openJetStream(config, role)
  void reportRefusals(js, log)
  const replicas = config.FAIRLEAD_REPLICAS
  try {
    const dead = await openDeadLetters(js, { ...prefixOf(config), replicas, cluster, log })
    const [events, queue] = await Promise.all([
      openEventStore(js, {
        ...prefixOf(config),
        replicas,
        cluster,
        log,
        bury: (found) => dead.put(found),
        referenceOnly: config.FAIRLEAD_REFERENCE_ONLY,
      }),
      openQueue(js, {
        ...queueOptions(config, log),
        replicas,
        ...(slots !== undefined && { slots }),
        ...(observer && { observer }),
      }),
    ])
    return { js, events, queue, dead, [Symbol.asyncDispose]: () => js.close() }
  } catch (error) {
    await js.close()
    if (!(error instanceof Error && error.message.includes('replicas > 1'))) throw error
    const why = 'FAIRLEAD_REPLICAS is 3, but this NATS is a single server: set it to 1, or use a cluster of three'
    throw new UsageError(why, { cause: error })
  }
}

/** Queue and dead letters as they are there, for those who look at them: an error if nobody has made them yet. */
export async function openExisting(
  config: Config,
  log: Logger,
): Promise<{ js: JetStream; queue: WorkQueue; dead: DeadLetters } & AsyncDisposable> {
  const js = await openJetStream(config, 'queue')
  try {
    const queue = await openQueue(js, { ...queueOptions(config, log), create: false })
    const dead = await openDeadLetters(js, { ...prefixOf(config), cluster: '', log, create: false })
    return { js, queue, dead, [Symbol.asyncDispose]: () => js.close() }
  } catch (error) {
    await js.close()
    if (!(error instanceof NoQueueError)) throw error
    const hint = 'fairlead up makes it; or is this another NATS (--nats), or another --prefix?'
    throw new UsageError(`${error.message} at ${js.nc.getServer()}: ${hint}`, { cause: error })
  }
}

function queueOptions(config: Config, log: Logger): QueueOptions {
  const leaseMs = config.FAIRLEAD_LEASE_SECONDS * 1000
  return { ...prefixOf(config), leaseMs, ackWaitMs: leaseMs, log, instance: `${hostname()}-${process.pid}` }
}

const prefixOf = ({ FAIRLEAD_PREFIX: prefix }: Config) => (prefix === undefined ? {} : { prefix })

/** What NATS refuses is never answered: without this line, whoever waits for the answer waits in silence. */
async function reportRefusals(js: JetStream, log: Logger): Promise<void> {
  for await (const status of js.nc.status())
    if (status.type === 'error' && status.error instanceof PermissionViolationError)
      log.error({ operation: status.error.operation, subject: status.error.subject }, 'NATS refuses: not permitted')
}

/** The files are read anew for each connection: who renews a certificate needs no restart. */
function tlsOf({ NATS_CA: caFile, NATS_CERT: certFile, NATS_KEY: keyFile }: Config) {
  if ((certFile === undefined) !== (keyFile === undefined))
    throw new UsageError('NATS_CERT and NATS_KEY belong together: the certificate of this client, and its key')
  const own = certFile !== undefined && keyFile !== undefined ? { certFile, keyFile } : undefined
  if (caFile === undefined && own === undefined) return {}
  return { options: { tls: { ...(caFile !== undefined && { caFile }), ...own } } }
}

export function openJetStream(config: Config, role: string): Promise<JetStream> {
  return connectJetStream({
    servers: config.NATS_URL,
    name: `fairlead ${role} ${hostname()} ${process.pid}`,
    ...tlsOf(config),
  })
}

/** Names the cluster in events: the UID of the one namespace that every cluster has and nobody can delete. */
export async function clusterId(kube: KubeClient): Promise<string> {
  const { metadata } = await kube.get(resourcePath(NAMESPACES, undefined, 'kube-system'))
  return metadata.uid ?? ''
}
