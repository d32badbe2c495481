import { createServer, type Server } from 'node:http'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { type BridgeObserver, type BridgeStatus, troubles } from '#bridge'
import type { RunObserver } from '#dispatch'
import type { RequestReport } from '#kube'
import { bridgeGauges, bridgeMetrics } from './bridge-metrics.ts'
import { UsageError } from './exit.ts'

/** controller-runtime's buckets for controller_runtime_reconcile_time_seconds. */
const RECONCILE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

export interface Metrics {
  registry: Registry
  onRequest: (request: RequestReport) => void
  bridge: BridgeObserver
  run: RunObserver
}

/** The names that dashboards for controller-runtime know; ours begin with fairlead_. */
export function createMetrics(): Metrics {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const registers = [registry]
  const requests = new Counter({
    name: 'rest_client_requests_total',
    help: 'Number of HTTP requests, partitioned by status code, method, and host.',
    labelNames: ['code', 'method', 'host'],
    registers,
  })
  const runs = new Counter({
    name: 'controller_runtime_reconcile_total',
    help: 'Total number of reconciliations per controller',
    labelNames: ['controller', 'result'],
    registers,
  })
  const errors = new Counter({
    name: 'controller_runtime_reconcile_errors_total',
    help: 'Total number of reconciliation errors per controller',
    labelNames: ['controller'],
    registers,
  })
  const terminal = new Counter({
    name: 'controller_runtime_terminal_reconcile_errors_total',
    help: 'Total number of terminal reconciliation errors per controller',
    labelNames: ['controller'],
    registers,
  })
  const times = new Histogram({
    name: 'controller_runtime_reconcile_time_seconds',
    help: 'Length of time per reconciliation per controller',
    labelNames: ['controller'],
    buckets: RECONCILE_BUCKETS,
    registers,
  })
  const active = new Gauge({
    name: 'controller_runtime_active_workers',
    help: 'Number of currently used workers per controller',
    labelNames: ['controller'],
    registers,
  })
  const queued = new Histogram({
    name: 'workqueue_queue_duration_seconds',
    help: 'How long in seconds an item stays in workqueue before being requested',
    labelNames: ['name', 'controller'],
    buckets: RECONCILE_BUCKETS,
    registers,
  })

  return {
    registry,
    onRequest: ({ code, method, host }) => requests.inc({ code, method, host }),
    bridge: bridgeMetrics(registry),
    run: (step) => {
      const controller = step.reconciler
      if (step.step === 'started') {
        active.inc({ controller })
        if (step.queuedMs !== undefined) queued.observe({ name: controller, controller }, step.queuedMs / 1000)
      }
      if (step.step !== 'finished') return
      active.dec({ controller })
      times.observe({ controller }, step.ms / 1000)
      const failed = step.result === 'error' || step.result === 'terminal'
      runs.inc({ controller, result: step.result === 'terminal' ? 'error' : step.result })
      if (failed) errors.inc({ controller })
      if (step.result === 'terminal') terminal.inc({ controller })
    },
  }
}

/** `host:port`, or `:port` for every address. */
export function parseAddress(address: string): { host: string | undefined; port: number } {
  const match = /^(.*):(\d{1,5})$/.exec(address)
  const port = Number(match?.[2])
  if (!match || port > 65_535)
    throw new UsageError(`"${address}" is no address to listen on: give host:port, such as 127.0.0.1:8080`)
  return { host: match[1] === '' ? undefined : match[1]?.replaceAll(/[[\]]/g, ''), port }
}

/** GET /metrics, /healthz and /readyz; ready while every watch is synced and gets on. */
export async function serveMetrics(
  address: string,
  registry: Registry,
  status: () => BridgeStatus | undefined,
): Promise<Server> {
  bridgeGauges(registry, status)
  const server = createServer((request, response) => {
    const answer = (code: number, body: string, type = 'text/plain; charset=utf-8') =>
      response.writeHead(code, { 'content-type': type }).end(body)
    if (request.url === '/healthz') return answer(200, 'ok\n')
    if (request.url === '/readyz') {
      const found = troubles(status() ?? { resources: [], refused: [] }, new Date())
      return found.length === 0 ? answer(200, 'ok\n') : answer(503, `${found.join('\n')}\n`)
    }
    if (request.url !== '/metrics') return answer(404, 'GET /metrics, /healthz or /readyz\n')
    registry.metrics().then(
      (text) => answer(200, text, registry.contentType),
      (error: Error) => answer(500, `${error.message}\n`),
    )
    return undefined
  })
  const { host, port } = parseAddress(address)
  await new Promise<void>((resolve, reject) => {
    const refused = ({ message }: Error) => reject(new UsageError(`cannot listen on ${address}: ${message}`))
    server.once('error', refused).listen(port, host, () => resolve())
  })
  return server
}
