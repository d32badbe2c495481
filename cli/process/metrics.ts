import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { Server as NetServer } from 'node:net'
import { AggregatorRegistry, Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client'
import type { BridgeObserver } from '#bridge'
import type { DeadLetters } from '#events'
import type { RequestReport } from '#kube'
import type { Backlog, Depth, WorkQueue } from '#queue'
import { UsageError } from './exit.ts'
import { bridgeMetrics, type RunMetrics, runMetrics } from './run-metrics.ts'

export interface Metrics extends RunMetrics {
  registry: Registry
  onRequest: (request: RequestReport) => void
  bridge: BridgeObserver
}

/**
 * Longer than a process lives. By default, prom-client wakes the process 100 times a second to sample the lag of the event
 * loop, which costs more than all other work of an idle process.
 */
const NEVER_MS = 2 ** 31 - 1
const isSampled = (name: string): boolean => /^nodejs_eventloop_lag_(?!seconds)/.test(name)

/** Returns the metrics of the process itself: its memory, CPU time and event loop. */
export function processMetrics(): Registry {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS })
  for (const { name } of registry.getMetricsAsArray()) if (isSampled(name)) registry.removeSingleMetric(name)
  return registry
}

/**
 * Creates the metrics of this process, with the names that dashboards for controller-runtime use. `cluster`: those of one
 * cluster of several, with its name in the label `cluster`, and without those of the process itself.
 */
export function createMetrics(cluster?: string): Metrics {
  const registry = cluster === undefined ? processMetrics() : new Registry()
  if (cluster !== undefined) registry.setDefaultLabels({ cluster })
  const requests = new Counter({
    name: 'rest_client_requests_total',
    help: 'Number of HTTP requests, partitioned by status code, method, and host.',
    labelNames: ['code', 'method', 'host'],
    registers: [registry],
  })
  return {
    registry,
    onRequest: ({ code, method, host }) => requests.inc({ code, method, host }),
    bridge: bridgeMetrics(registry),
    ...runMetrics(registry),
  }
}

/** Parses `host:port`, or `:port` for all addresses. */
export function parseAddress(address: string): { host: string | undefined; port: number } {
  const match = /^(.*):(\d{1,5})$/.exec(address)
  const port = Number(match?.[2])
  if (!match || port > 65_535)
    throw new UsageError(`"${address}" is not an address to listen on: give host:port, such as 127.0.0.1:8080`)
  return { host: match[1] === '' ? undefined : match[1]?.replaceAll(/[[\]]/g, ''), port }
}

export interface Health {
  /** The reasons why the process does not work; empty if it works. */
  troubles: () => string[]
  /** Further lines of /readyz, which decide nothing. */
  lines?: () => string[]
}

/** Returns the metrics of these registries, which have the same names, as one text. */
export async function mergedMetrics(registries: readonly Registry[]): Promise<string> {
  const all = await Promise.all(registries.map((one) => one.getMetricsAsJSON()))
  return AggregatorRegistry.aggregate(all).metrics()
}

/** Serves GET /metrics, /healthz and /readyz. /readyz fails while `health` reports troubles. */
export async function serveMetrics(
  address: string,
  registry: Pick<Registry, 'metrics' | 'contentType'>,
  { troubles, lines = () => [] }: Health,
): Promise<Server> {
  const server = createServer((request, response) => {
    const answer = (code: number, body: string, type = 'text/plain; charset=utf-8') =>
      response.writeHead(code, { 'content-type': type }).end(body)
    if (request.url === '/healthz') return answer(200, 'ok\n')
    if (request.url === '/readyz') {
      const found = troubles()
      const [code, first] = found.length === 0 ? [200, ['ok']] : [503, found]
      return answer(code, [...first, ...lines(), ''].join('\n'))
    }
    if (request.url !== '/metrics') return answer(404, 'GET /metrics, /healthz or /readyz\n')
    registry.metrics().then(
      (text) => answer(200, text, registry.contentType),
      (error: Error) => answer(500, `${error.message}\n`),
    )
    return undefined
  })
  await listening(server, address)
  return server
}

/** Resolves when the server listens on `host:port` or `:port`. Throws a UsageError if it cannot. */
export async function listening(server: NetServer, address: string): Promise<void> {
  const { host, port } = parseAddress(address)
  await new Promise<void>((resolve, reject) => {
    const refused = ({ message }: Error) => reject(new UsageError(`cannot listen on ${address}: ${message}`))
    server.once('error', refused).listen(port, host, () => resolve())
  })
}

const AT_LEAST_MS = 1000
const AT_MOST_MS = 60_000
/** nats-server blocks writes to a stream while it counts its messages: 28 ms with 300,000 timers. */
const TIMES_AS_LONG = 100

/**
 * Shares one answer among all callers within a second, or within 100 times the duration of the request, but at most a
 * minute.
 */
export function shared<T>(ask: () => Promise<T>, now: () => number = () => performance.now()): () => Promise<T> {
  let last: { answer: Promise<T>; until: number } | undefined
  return () => {
    if (last !== undefined && now() <= last.until) return last.answer
    const began = now()
    const asked = { answer: ask(), until: began + AT_LEAST_MS }
    const settled = () => {
      const took = now() - began
      asked.until = began + Math.min(AT_MOST_MS, Math.max(AT_LEAST_MS, TIMES_AS_LONG * took))
    }
    asked.answer.then(settled, () => undefined)
    last = asked
    return asked.answer
  }
}

interface Depths {
  controller: string
  depth: Depth
  backlog: Backlog
}

/** client-go's priorities of changes, and of initial lists and resync. */
const PRIORITY = { high: '0', low: '-100' } as const

/**
 * Reports the contents of the streams, read at each scrape. Every process reports the same values, so use the maximum
 * over processes, not the sum.
 */
export function depthGauges(
  registry: Registry,
  queue: Pick<WorkQueue, 'reconcilers' | 'depth' | 'backlog'>,
  dead: Pick<DeadLetters, 'count'>,
  now: () => number = Date.now,
): void {
  const asked = shared(async () => ({ queues: await depthsOf(queue), dead: await dead.count() }))

  const gauge = (
    name: string,
    help: string,
    labelNames: string[],
    fill: (gauge: Gauge, all: Awaited<ReturnType<typeof asked>>) => void,
  ) => {
    const one: Gauge = new Gauge({
      name,
      help,
      labelNames,
      registers: [registry],
      async collect() {
        one.reset()
        // Another gauge reports that NATS does not answer.
        await asked().then(
          (all) => fill(one, all),
          () => undefined,
        )
      },
    })
  }

  gauge(
    'workqueue_depth',
    'Current depth of workqueue by workqueue and priority',
    ['name', 'controller', 'priority'],
    (one, { queues }) => {
      for (const { controller, backlog } of queues)
        for (const lane of ['high', 'low'] as const)
          one.set({ name: controller, controller, priority: PRIORITY[lane] }, backlog.lanes[lane])
    },
  )
  gauge(
    'fairlead_keys',
    'Keys by what they do; waiting are those with a timer',
    ['controller', 'state'],
    (one, { queues }) => {
      for (const { controller, depth } of queues)
        for (const [state, count] of Object.entries(depth)) one.set({ controller, state }, count)
    },
  )
  gauge(
    'fairlead_oldest_queued_seconds',
    'How long the key that is queued longest has been',
    ['controller'],
    (one, { queues }) => {
      for (const { controller, backlog } of queues)
        one.set({ controller }, backlog.oldest === undefined ? 0 : Math.max(0, now() - backlog.oldest.getTime()) / 1000)
    },
  )
  gauge('fairlead_dead_letters', 'Messages and keys in DEAD, by why', ['reason'], (one, all) => {
    for (const [reason, count] of Object.entries(all.dead)) one.set({ reason }, count)
  })
  const reachable: Gauge = new Gauge({
    name: 'fairlead_nats_reachable',
    help: '1 if the streams could be read for this scrape',
    registers: [registry],
    async collect() {
      const answered = asked().then(
        () => 1,
        () => 0,
      )
      reachable.set(await answered)
    },
  })
}

async function depthsOf(queue: Pick<WorkQueue, 'reconcilers' | 'depth' | 'backlog'>): Promise<Depths[]> {
  const controllers = await queue.reconcilers()
  return Promise.all(
    controllers.map(async (controller) => {
      const [depth, backlog] = await Promise.all([queue.depth(controller), queue.backlog(controller)])
      return { controller, depth, backlog }
    }),
  )
}

interface StreamUsage {
  bytes: number
  /** Undefined: the stream rejects no message because of its size. */
  maxBytes: number | undefined
}

/**
 * Reports the bytes in the streams and their limits, read at each scrape. Every process reports the same values. A stream
 * that does not exist has no value. `maxBytes`: the storage that NATS has for all streams; left out if it is unknown.
 */
export function storageGauges(
  registry: Registry,
  streams: readonly string[],
  usageOf: (stream: string) => Promise<StreamUsage | undefined>,
  maxBytes?: number,
): void {
  // Another gauge reports that NATS does not answer; a stream alone may have no leader.
  const usage = async (stream: string) => ({ stream, usage: await usageOf(stream).catch(() => undefined) })
  const asked = shared(() => Promise.all(streams.map(usage)))
  const gauge = (name: string, help: string, valueOf: (usage: StreamUsage) => number | undefined) => {
    const one: Gauge = new Gauge({
      name,
      help,
      labelNames: ['stream'],
      registers: [registry],
      async collect() {
        one.reset()
        for (const { stream, usage } of await asked()) {
          const value = usage && valueOf(usage)
          if (value !== undefined) one.set({ stream }, value)
        }
      },
    })
  }
  gauge('fairlead_stream_bytes', 'Bytes in the stream, in each replica', ({ bytes }) => bytes)
  gauge('fairlead_stream_max_bytes', 'The size at which the stream rejects messages', (usage) => usage.maxBytes)
  if (maxBytes === undefined) return
  const storage = new Gauge({
    name: 'fairlead_storage_max_bytes',
    help: 'Bytes that NATS has for all streams (FAIRLEAD_STORAGE_MAX_BYTES)',
    registers: [registry],
  })
  storage.set(maxBytes)
}

export interface CertificateObserver {
  /** The end of validity of the certificate that NATS showed at the last connection. */
  serverCertificate(end: Date): void
}

/**
 * Reports when the certificates end that this process and NATS use for mutual TLS. A connection without TLS has no such
 * gauge.
 */
export function certificateGauge(registry: Registry, clientCertificate: string | undefined): CertificateObserver {
  let server: Date | undefined
  const gauge: Gauge = new Gauge({
    name: 'fairlead_nats_certificate_expiration_timestamp_seconds',
    help: 'When a certificate of the connection to NATS ends: of the server as it was last seen, of this client as its file is',
    labelNames: ['certificate'],
    registers: [registry],
    async collect() {
      gauge.reset()
      const ends = { server, client: await endOf(clientCertificate) }
      for (const [certificate, end] of Object.entries(ends))
        if (end !== undefined) gauge.set({ certificate }, end.getTime() / 1000)
    },
  })
  return { serverCertificate: (end) => (server = end) }
}

/** Returns undefined for a file that cannot be read: the connection that needs the file reports the error. */
async function endOf(file: string | undefined): Promise<Date | undefined> {
  if (file === undefined) return undefined
  try {
    return new X509Certificate(await readFile(file)).validToDate
  } catch {
    return undefined
  }
}
