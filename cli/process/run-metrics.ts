import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { BridgeObserver, BridgeStatus, ResourceStatus } from '#bridge'
import { resourceName } from '#contracts'
import type { RunObserver } from '#dispatch'
import type { QueueObserver } from '#queue'
import { type FunctionMetrics, functionMetrics } from './function-metrics.ts'

/** The buckets of controller-runtime. */
const RECONCILE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
/** The buckets of client-go's workqueue: 10 ns, and eleven further powers of ten. */
const QUEUE_BUCKETS = Array.from({ length: 12 }, (_, power) => Number(`1e${power - 8}`))
const LATENESS_BUCKETS = [0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5, 5, 10, 60]

const RESULTS = ['success', 'error', 'requeue', 'requeue_after'] as const
/**
 * Kinds of effects per controller. The limit protects the memory of this process from a function that generates kinds.
 */
const MAX_EFFECT_KINDS = 64
const OTHER_KIND = 'other'

export interface RunMetrics {
  run: RunObserver
  queue: QueueObserver
  eventDropped: (controller: string) => void
  /** Removes what the function of a Reconciler has measured and its declaration does not have. */
  declared: FunctionMetrics['declared']
  /** Called when a run was not recorded. */
  runDropped: (controller: string) => void
  /** Sets counters of the controllers to 0, as controller-runtime does at the start of a controller. */
  start: (controllers: readonly string[]) => void
}

/**
 * Metrics of the runs of this process, with the names and labels of controller-runtime; additional metrics begin with
 * fairlead_.
 */
export function runMetrics(registry: Registry, now: () => number = () => performance.now()): RunMetrics {
  const registers = [registry]
  const counter = (name: string, help: string, labelNames: string[] = ['controller']) =>
    new Counter({ name, help, labelNames, registers })
  const runs = counter('controller_runtime_reconcile_total', 'Total number of reconciliations per controller', [
    'controller',
    'result',
  ])
  const perController = {
    errors: counter(
      'controller_runtime_reconcile_errors_total',
      'Total number of reconciliation errors per controller',
    ),
    terminal: counter(
      'controller_runtime_terminal_reconcile_errors_total',
      'Total number of terminal reconciliation errors per controller',
    ),
    panics: counter(
      'controller_runtime_reconcile_panics_total',
      'Total number of reconciliation panics per controller: of runs of a key that ended their process, from the second in a row on',
    ),
    timeouts: counter(
      'controller_runtime_reconcile_timeouts_total',
      'Total number of reconciliation timeouts per controller',
    ),
    leasesLost: counter('fairlead_leases_lost_total', 'Runs whose key may have been another’s before they ended'),
    revived: counter('fairlead_tokens_revived_total', 'Keys that were queued, or due, and would never have run'),
    eventsDropped: counter('fairlead_events_dropped_total', 'Kubernetes Events not written because too many waited'),
    runsDropped: counter('fairlead_runs_dropped_total', 'Runs that RUNS does not have because NATS was away or slow'),
    takenBack: counter('fairlead_taken_back_total', 'Writes that took fields of objects back from others'),
    contested: counter(
      'fairlead_contested_total',
      'Writes that took fields back in a fight: other managers go on changing them',
    ),
    coalesced: counter('fairlead_changes_coalesced_total', 'Changes of keys that were queued already'),
  }
  const adds = counter('workqueue_adds_total', 'Total number of adds handled by workqueue', ['name', 'controller'])
  const retries = counter('workqueue_retries_total', 'Total number of retries handled by workqueue', [
    'name',
    'controller',
  ])
  const times = new Histogram({
    name: 'controller_runtime_reconcile_time_seconds',
    help: 'Length of time per reconciliation per controller',
    labelNames: ['controller'],
    buckets: RECONCILE_BUCKETS,
    registers,
  })
  const slots = new Gauge({
    name: 'controller_runtime_max_concurrent_reconciles',
    help: 'Maximum number of concurrent reconciles per controller',
    labelNames: ['controller'],
    registers,
  })
  const active = new Gauge({
    name: 'controller_runtime_active_workers',
    help: 'Number of currently used workers per controller',
    labelNames: ['controller'],
    registers,
  })
  const queueTimes = (name: string, help: string) =>
    new Histogram({ name, help, labelNames: ['name', 'controller'], buckets: QUEUE_BUCKETS, registers })
  const queued = queueTimes(
    'workqueue_queue_duration_seconds',
    'How long in seconds an item stays in workqueue before being requested',
  )
  const worked = queueTimes(
    'workqueue_work_duration_seconds',
    'How long in seconds processing an item from workqueue takes.',
  )
  const lateness = new Histogram({
    name: 'fairlead_timer_lateness_seconds',
    help: 'Time from when a timer was due to when its key was queued',
    labelNames: ['controller'],
    buckets: LATENESS_BUCKETS,
    registers,
  })

  const effects = counter('fairlead_effects_total', 'Changes of external systems, by the kind of the effect', [
    'reconciler',
    'kind',
    'result',
  ])
  const externalTimes = (name: string, help: string, labelNames: string[]) =>
    new Histogram({ name, help, labelNames, buckets: RECONCILE_BUCKETS, registers })
  const effectTimes = externalTimes('fairlead_effect_duration_seconds', 'How long effects took', ['reconciler', 'kind'])
  const readTimes = externalTimes(
    'fairlead_external_read_duration_seconds',
    'How long reads of external systems took',
    ['reconciler', 'result'],
  )
  const ofFunctions = functionMetrics(registry)
  const kinds = new Map<string, Set<string>>()
  const labelOf = (reconciler: string, kind: string): string => {
    const known = kinds.get(reconciler) ?? new Set()
    kinds.set(reconciler, known)
    if (known.size < MAX_EFFECT_KINDS) known.add(kind)
    return known.has(kind) ? kind : OTHER_KIND
  }

  /** The start of each run of this process, by controller and key. */
  const underWay = new Map<string, Map<string, number>>()
  const ages = (controller: string) => [...(underWay.get(controller)?.values() ?? [])].map((at) => (now() - at) / 1000)
  const ageGauge = (name: string, help: string, value: (ages: number[]) => number) => {
    const gauge = new Gauge({
      name,
      help,
      labelNames: ['name', 'controller'],
      registers,
      collect() {
        for (const controller of underWay.keys()) gauge.set(queueOf(controller), value(ages(controller)))
      },
    })
  }
  ageGauge(
    'workqueue_unfinished_work_seconds',
    "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
    (all) => all.reduce((sum, age) => sum + age, 0),
  )
  ageGauge(
    'workqueue_longest_running_processor_seconds',
    'How many seconds has the longest running processor for workqueue been running.',
    (all) => Math.max(0, ...all),
  )

  const start = (controller: string): void => {
    if (underWay.has(controller)) return
    underWay.set(controller, new Map())
    for (const result of RESULTS) runs.inc({ controller, result }, 0)
    for (const one of Object.values(perController)) one.inc({ controller }, 0)
    for (const one of [adds, retries]) one.inc(queueOf(controller), 0)
    active.set({ controller }, 0)
  }

  return {
    start: (controllers) => controllers.forEach(start),
    run(step) {
      const controller = step.reconciler
      start(controller)
      if (step.step === 'timedOut') perController.timeouts.inc({ controller })
      if (step.step === 'started') {
        active.inc({ controller })
        underWay.get(controller)?.set(step.key, now())
      }
      if (step.step === 'takenBack') {
        perController.takenBack.inc({ controller })
        if (step.isContested) perController.contested.inc({ controller })
      }
      if (step.step === 'counted') ofFunctions.counted(controller, step.change)
      if (step.step === 'measured') ofFunctions.measured(controller, step.key, step.changes)
      if (step.step === 'read') readTimes.observe({ reconciler: controller, result: step.result }, step.ms / 1000)
      if (step.step === 'performed') {
        const labels = { reconciler: controller, kind: labelOf(controller, step.kind) }
        effects.inc({ ...labels, result: step.result })
        effectTimes.observe(labels, step.ms / 1000)
      }
      if (step.step !== 'finished') return
      active.dec({ controller })
      underWay.get(controller)?.delete(step.key)
      times.observe({ controller }, step.ms / 1000)
      // Another process counts a run that was fenced or handed back.
      if (step.result === 'fenced') return
      const failed = step.result === 'error' || step.result === 'terminal'
      runs.inc({ controller, result: step.result === 'terminal' ? 'error' : step.result })
      if (failed) perController.errors.inc({ controller })
      if (step.result === 'terminal') perController.terminal.inc({ controller })
    },
    declared: ofFunctions.declared,
    eventDropped: (controller) => perController.eventsDropped.inc({ controller }),
    runDropped: (controller) => perController.runsDropped.inc({ controller }),
    queue: {
      onServe(controller, count) {
        start(controller)
        slots.set({ controller }, count)
      },
      onEnqueue(controller, result) {
        start(controller)
        if (result === 'queued') adds.inc(queueOf(controller))
        else perController.coalesced.inc({ controller })
      },
      onTake(controller, queuedMs, lateMs) {
        queued.observe(queueOf(controller), Math.max(0, queuedMs) / 1000)
        if (lateMs !== undefined) lateness.observe({ controller }, Math.max(0, lateMs) / 1000)
      },
      onFinish(controller, kind, workMs) {
        worked.observe(queueOf(controller), workMs / 1000)
        if (kind === 'error') retries.inc(queueOf(controller))
      },
      onFenced: (controller) => perController.leasesLost.inc({ controller }),
      onLost: (controller) => perController.panics.inc({ controller }),
      onRevive: (controller) => perController.revived.inc({ controller }),
    },
  }
}

/** A queue has the name of its controller. */
const queueOf = (controller: string) => ({ name: controller, controller })

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
