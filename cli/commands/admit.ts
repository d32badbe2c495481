import { once } from 'node:events'
import { join } from 'node:path'
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import { UsageError, untilStopped } from '#process/exit'
import { demandFunctions, type Selection } from '#process/functions'
import { createLogger } from '#process/logging'
import { createMetrics, serveMetrics } from '#process/metrics'
import { webhookResources } from '#process/webhooks/probe'
import { serveWebhooks, type WebhookObserver } from '#process/webhooks/server'
import type { Resource } from '#sdk'
import type { CommandContext } from '../options.ts'

export interface AdmitOptions extends Selection {
  address: string
  tls: string
  listen?: string
  drainSeconds: number
}

/** Serves the webhooks of the functions' resources. Needs neither a cluster nor NATS, and has no rights there. */
export async function admit(options: AdmitOptions, { config }: CommandContext): Promise<void> {
  const { address, tls, listen, drainSeconds } = options
  const log = await createLogger(await config())
  const resources = webhookResources(await demandFunctions(options))
  if (resources.length === 0)
    throw new UsageError(
      'no resource of these functions has a conversion ("convert"), "validate" or "admit", so nothing would call this process',
    )
  for (const one of resources) warmUp(one)
  const { registry } = createMetrics()
  const files = { cert: join(tls, 'tls.crt'), key: join(tls, 'tls.key') }
  const observer = webhookMetrics(registry)
  const webhooks = await serveWebhooks({ address, files, resources, observer, log })
  webhookCertificateGauge(registry, webhooks.certificateEnd)
  const { signal } = untilStopped()
  const health = { status: () => undefined, troubles: () => (signal.aborted ? ['it is stopping'] : []) }
  const metrics = listen === undefined ? undefined : await serveMetrics(listen, registry, health)
  log.info(
    { port: webhooks.port, resources: resources.map(({ resource, group }) => `${resource}.${group}`) },
    'serving',
  )
  if (!signal.aborted) await once(signal, 'abort')
  log.info({ because: (signal.reason as Error).message, drainSeconds }, 'stopping')
  await webhooks.drain(drainSeconds * 1000)
  metrics?.close()
}

/** The first conversion takes a hundred times as long as others. */
function warmUp(resource: Resource): void {
  const [stored, ...others] = resource.versions()
  const object = resource.of({ metadata: { name: 'warm-up' }, spec: {} })
  for (const { version } of stored === undefined ? [] : others) resource.convert(object, version)
}

const BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1]

export function webhookMetrics(registry: Registry): WebhookObserver {
  const conversions = new Histogram({
    name: 'fairlead_conversion_duration_seconds',
    help: 'Duration of the conversion of one object, by what became of it: success, partial or failure',
    labelNames: ['resource', 'from', 'to', 'result'],
    buckets: BUCKETS,
    registers: [registry],
  })
  const validations = new Histogram({
    name: 'fairlead_validation_duration_seconds',
    help: 'Duration of validate and admit for one write, by what became of it: admitted, refused or failure',
    labelNames: ['resource', 'result'],
    buckets: BUCKETS,
    registers: [registry],
  })
  const refusedWrites = new Counter({
    name: 'fairlead_refused_writes_total',
    help: 'What validate and admit have refused, without dry runs, by the field of the schema: a write counts once for each',
    labelNames: ['resource', 'path', 'reason'],
    registers: [registry],
  })
  const refused = new Counter({
    name: 'fairlead_webhook_refused_total',
    help: 'Requests that no webhook has answered: invalid, too-large, late or busy',
    labelNames: ['reason'],
    registers: [registry],
  })
  return {
    converted: ({ resource, from, to, result, ms }) => conversions.observe({ resource, from, to, result }, ms / 1000),
    validated: ({ resource, result, ms, dryRun, refusals }) => {
      validations.observe({ resource, result }, ms / 1000)
      if (!dryRun) for (const refusal of refusals) refusedWrites.inc({ resource, ...refusal })
    },
    refused: (reason) => refused.inc({ reason }),
  }
}

export const webhookCertificateGauge = (registry: Registry, end: () => Date): Gauge =>
  new Gauge({
    name: 'fairlead_webhook_certificate_expiration_timestamp_seconds',
    help: 'When the certificate ends that new connections get',
    registers: [registry],
    collect() {
      this.set(end().getTime() / 1000)
    },
  })
