import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { allEnded } from '#primitives'
import { ensureBinaries } from './build.ts'
import { freePorts, requirePort } from './ports.ts'
import { type ManagedProcess, ProcessGroup } from './processes.ts'
import { type Progress, silentProgress } from './progress.ts'
import { stopWithThisProcess } from './reaper.ts'
import type { NatsServer } from './state.ts'
import { stopCluster } from './stop.ts'

export interface NatsOptions {
  /** Contains the stores, logs and process ids. */
  dir: string
  /** The number of servers. With 3, streams can have 3 replicas. Default 1. */
  replicas?: 1 | 3
  /** The port of the first server. Default: a free one. */
  port?: number
  /** The limit of all streams together, in bytes. Default: nats-server derives it from the size of the disk. */
  maxBytes?: number
  /**
   * The interval in which JetStream syncs its files to the disk, in the format of nats-server's configuration. Default:
   * 2 minutes.
   */
  syncInterval?: string
  /**
   * Users and their permissions, in the format of nats-server's configuration. Default: all clients have all
   * permissions.
   */
  authorization?: object
  /** Accounts with their own users, instead of `authorization`. */
  accounts?: object
  /** Certificates, in the format of nats-server's configuration. Default: TCP without TLS. */
  tls?: object
  progress?: Progress
  /** Stops the servers when this process ends, even by kill -9. */
  dieWithParent?: boolean
  /** Removes the folder with the servers. */
  temporary?: boolean
  /** Cancels the build of nats-server. */
  signal?: AbortSignal
}

/** nats-server with JetStream, on loopback. */
export interface Nats {
  /** The addresses of all servers, separated by commas, as in NATS_URL. */
  url: string
  urls: string[]
  /** The HTTP monitoring addresses of the servers: `/varz`, `/jsz`, `/healthz` … */
  monitoringUrls: string[]
  /** The names of the servers, here and in `processes`. */
  names: string[]
  servers: NatsServer[]
  processes: ProcessGroup
  /** Sends a signal to a server, for tests: SIGKILL, SIGSTOP, SIGCONT. */
  signal(signal: NodeJS.Signals, index?: number): void
  /** Kills the server if it runs, starts it with the same port and store, and resolves when it serves again. */
  restart(index?: number): Promise<void>
  /** Resolves when JetStream runs on every server and, in a cluster, each server knows the leader. */
  ready(): Promise<void>
  /** Stops the servers and keeps their data. */
  stop(): Promise<void>
}

/** Starts NATS in a folder of its own. A cluster uses {@link startNatsServers} instead. */
export async function startNats(options: NatsOptions): Promise<Nats> {
  const dir = resolve(options.dir)
  const removeDir = options.temporary ?? false
  const paths = await ensureBinaries(['nats-server'], options.progress ?? silentProgress, options).catch((error) => {
    if (removeDir) rmSync(dir, { recursive: true, force: true })
    throw error
  })
  await stopCluster(dir)
  const reaper = options.dieWithParent ? stopWithThisProcess(dir, { removeDir }) : undefined
  const stop = async (): Promise<void> => {
    await stopCluster(dir, { removeDir })
    reaper?.release()
  }
  try {
    return { ...(await startNatsServers(new ProcessGroup(dir), paths('nats-server'), options)), stop }
  } catch (error) {
    await stop()
    throw error
  }
}

export async function startNatsServers(
  processes: ProcessGroup,
  command: string,
  {
    replicas = 1,
    port,
    maxBytes,
    syncInterval,
    authorization,
    accounts,
    tls,
  }: Omit<NatsOptions, 'dir' | 'progress' | 'dieWithParent' | 'temporary' | 'signal'>,
): Promise<Nats> {
  const servers = await plan(replicas, port)
  const jetstream = {
    ...(maxBytes !== undefined && { max_file: maxBytes }),
    ...(syncInterval !== undefined && { sync_interval: syncInterval }),
  }
  const more = { ...(authorization && { authorization }), ...(accounts && { accounts }), ...(tls && { tls }) }
  await allEnded(servers.map((server) => startServer(processes, command, server, servers, { jetstream, more })))
  const nats = natsOf(processes, servers)
  await nats.ready()
  return nats
}

async function plan(replicas: number, wantedPort: number | undefined): Promise<NatsServer[]> {
  const ports = await freePorts(replicas * 3)
  if (wantedPort !== undefined) ports[0] = await requirePort(wantedPort, 'nats-server')
  return Array.from({ length: replicas }, (_, index) => {
    const [port = 0, monitoringPort = 0, clusterPort = 0] = ports.slice(index * 3, index * 3 + 3)
    return { name: replicas === 1 ? 'nats' : `nats-${index + 1}`, port, monitoringPort, clusterPort }
  })
}

async function startServer(
  processes: ProcessGroup,
  command: string,
  server: NatsServer,
  all: readonly NatsServer[],
  settings: Settings,
): Promise<ManagedProcess> {
  const dir = join(processes.dir, 'nats', server.name)
  mkdirSync(dir, { recursive: true })
  const configFile = join(dir, 'server.conf')
  writeFileSync(configFile, configOf(server, all, join(dir, 'store'), settings))
  return processes.start({ name: server.name, command, args: ['-c', configFile], env: COLLECTS_OFTEN })
}

/** As in deploy/nats/nats.yaml. */
const COLLECTS_OFTEN = { GOGC: '50' }

/** As in deploy/fairlead-ha/cluster.conf. */
const LEAVES_SILENT_SERVERS = { ping_interval: '2s', ping_max: 2 }

/**
 * nats-server writes its first files to the disk before it is ready. A busy disk can delay this by more than half a
 * minute.
 */
const START_TIMEOUT_MS = 120_000

interface Settings {
  jetstream: object
  more: object
}

/** Returns the configuration as JSON, which nats-server accepts. */
function configOf(
  server: NatsServer,
  all: readonly NatsServer[],
  storeDir: string,
  { jetstream, more }: Settings,
): string {
  const cluster = {
    name: 'fairlead-local',
    ...LEAVES_SILENT_SERVERS,
    listen: `127.0.0.1:${server.clusterPort}`,
    routes: all.map(({ clusterPort }) => `nats://127.0.0.1:${clusterPort}`),
  }
  const config = {
    server_name: server.name,
    listen: `127.0.0.1:${server.port}`,
    http: `127.0.0.1:${server.monitoringPort}`,
    jetstream: { store_dir: storeDir, ...jetstream },
    ...(all.length > 1 ? { cluster } : {}),
    ...more,
  }
  return `${JSON.stringify(config, null, 2)}\n`
}

export function natsOf(processes: ProcessGroup, servers: readonly NatsServer[]): Nats {
  const at = (index: number): NatsServer => {
    const server = servers[index]
    if (!server) throw new Error(`there is no NATS server ${index}: ${servers.length} run`)
    return server
  }
  const urls = servers.map(({ port }) => `nats://127.0.0.1:${port}`)
  const waitUntilHealthy = async (some: readonly NatsServer[]): Promise<void> => {
    await processes.waitFor(
      'nats-server',
      async () => (await Promise.all(some.map(({ monitoringPort }) => isHealthy(monitoringPort)))).every(Boolean),
      START_TIMEOUT_MS,
      some.map(({ name }) => name),
    )
  }
  return {
    url: urls.join(','),
    urls,
    monitoringUrls: servers.map(({ monitoringPort }) => `http://127.0.0.1:${monitoringPort}`),
    names: servers.map(({ name }) => name),
    servers: [...servers],
    processes,
    signal: (signal, index = 0) => processes.signal(at(index).name, signal),
    async restart(index = 0) {
      await processes.restart(at(index).name)
      await waitUntilHealthy([at(index)])
    },
    ready: () => waitUntilHealthy(servers),
    async stop() {
      await Promise.all(servers.map(({ name }) => processes.stop(name)))
    },
  }
}

async function isHealthy(monitoringPort: number): Promise<boolean> {
  try {
    const answer = await fetch(`http://127.0.0.1:${monitoringPort}/healthz`, { signal: AbortSignal.timeout(1000) })
    return answer.ok
  } catch {
    return false
  }
}
