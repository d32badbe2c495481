import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { BridgeObserver, BridgeStatus, ResourceStatus } from '#bridge'
import { resourceName } from '#contracts'

const SECONDS = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]

/** Counts the events that the bridge reports. */
export function bridgeMetrics(registry: Registry): BridgeObserver {
  const registers = [registry]
  const published = new Counter({
    name: 'fairlead_bridge_events_total',
    help: 'Changes that the bridge has published, by what EVENTS made of them: stored, or dropped since it was there',
    labelNames: ['resource', 'outcome'],
    registers,
  })
  const publishing = new Histogram({
    name: 'fairlead_bridge_publish_seconds',
    help: 'Time from a change that was read to its event stored and its keys enqueued',
    labelNames: ['resource'],
    buckets: SECONDS,
    registers,
  })
  const echoes = new Counter({
    name: 'fairlead_bridge_echoes_dropped_total',
    help: 'Changes that a run of this process made itself, so that they enqueue nothing',
    labelNames: ['controller'],
    registers,
  })
  const bytes = new Counter({
    name: 'fairlead_bridge_received_bytes_total',
    help: 'Bytes read from watches and streamed lists',
    labelNames: ['resource'],
    registers,
  })
  const interrupted = new Counter({
    name: 'fairlead_bridge_watch_interruptions_total',
    help: 'Watches and lists that ended otherwise than agreed',
    labelNames: ['resource', 'reason'],
    registers,
  })
  const relists = new Counter({
    name: 'fairlead_bridge_relists_total',
    help: 'Complete lists that were compared with EVENTS',
    labelNames: ['resource', 'reason'],
    registers,
  })
  return {
    published({ ref, outcome, ms }) {
      const resource = resourceName(ref)
      published.inc({ resource, outcome })
      publishing.observe({ resource }, ms / 1000)
    },
    dropped: ({ reconciler }) => echoes.inc({ controller: reconciler }),
    received: ({ resource, bytes: count }) => bytes.inc({ resource }, count),
    interrupted: ({ resource, failure }) => interrupted.inc({ resource, reason: failure }),
    relisted: ({ resource, because }) => relists.inc({ resource, reason: because }),
  }
}

/** Reports the state of the bridge, read at each scrape. */
export function bridgeGauges(registry: Registry, status: () => BridgeStatus | undefined, now = () => new Date()): void {
  const ageOf = (date: Date | undefined): number => (date ? (now().getTime() - date.getTime()) / 1000 : 0)
  const gauges: [name: string, help: string, value: (resource: ResourceStatus) => number][] = [
    ['lag_seconds', 'Age of the oldest change that is read and not confirmed', (one) => ageOf(one.heldBackSince)],
    ['lag_resource_versions', 'How far the confirmed changes are behind the newest that was read', versionsBehind],
    ['unconfirmed_changes', 'Changes that are read and not confirmed', ({ unconfirmed }) => unconfirmed],
    ['silent_seconds', 'Time since the server’s last answer, event or bookmark', (one) => ageOf(one.heardAt)],
    ['synced', '1 when all that exists is known to every Reconciler that asks', ({ synced }) => Number(synced)],
    ['watching', '1 while the watch is open and gets on', (one) => Number(one.open && !one.failingSince)],
  ]
  for (const [name, help, value] of gauges) {
    const gauge = new Gauge({
      name: `fairlead_bridge_${name}`,
      help,
      labelNames: ['resource', 'namespace'],
      registers: [registry],
      collect() {
        gauge.reset()
        for (const resource of status()?.resources ?? [])
          gauge.set({ resource: resource.resource, namespace: resource.namespace ?? '' }, value(resource))
      },
    })
  }
  const orphans: Gauge = new Gauge({
    name: 'fairlead_orphaned_finalizers',
    help: 'Objects that are being deleted and wait for the finalizer of a Reconciler that does not exist',
    labelNames: ['controller', 'resource'],
    registers: [registry],
    collect() {
      orphans.reset()
      for (const { reconciler, resource, waiting } of status()?.orphans ?? [])
        orphans.set({ controller: reconciler, resource }, waiting)
    },
  })
  const paused: Gauge = new Gauge({
    name: 'fairlead_reconciler_paused',
    help: '1 for a Reconciler with spec.paused, whose queued keys wait',
    labelNames: ['controller'],
    registers: [registry],
    collect() {
      paused.reset()
      for (const controller of status()?.paused ?? []) paused.set({ controller }, 1)
    },
  })
}

function versionsBehind({ latestResourceVersion: latest, resourceVersion: safe }: ResourceStatus): number {
  if (latest === undefined || safe === undefined || !/^\d+$/.test(latest) || !/^\d+$/.test(safe)) return 0
  return Number(BigInt(latest) - BigInt(safe))
}
