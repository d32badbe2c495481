import { Counter, collectDefaultMetrics, Registry } from 'prom-client'
import type { BridgeObserver } from '#bridge'
import type { RequestReport } from '#kube'
import { bridgeMetrics } from './bridge.ts'
import { type RunMetrics, runMetrics } from './runs.ts'

export { type CertificateObserver, certificateGauge } from './certificates.ts'
export { depthGauges } from './depth.ts'
export { listening, parseAddress, serveMetrics } from './server.ts'
export { storageGauges } from './storage.ts'

export interface Metrics extends RunMetrics {
  registry: Registry
  onRequest: (request: RequestReport) => void
  bridge: BridgeObserver
}

/** Creates the metrics of this process, with the names that dashboards for controller-runtime use. */
export function createMetrics(): Metrics {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
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
