import { Counter, Gauge, type Registry } from 'prom-client'
import type { MetricChange } from '#reconcile'

interface Known {
  metric: Counter | Gauge
  type: MetricChange['type']
  labels: string
  controllers: Set<string>
}

/**
 * Returns a function that applies what functions report to metrics with the prefix fairlead_function_. Each series has the
 * label `controller`. Declarations limit their number. Two Reconcilers may share a name if both declare the same type and
 * labels; otherwise the first one has it, until the process starts again.
 */
export function functionMetrics(registry: Registry): (controller: string, change: MetricChange) => void {
  const known = new Map<string, Known>()

  const knownFor = (controller: string, { name, type, help, labels }: MetricChange): Known | undefined => {
    const names = Object.keys(labels).sort()
    const before = known.get(name)
    const isSame = before?.type === type && before.labels === names.join()
    if (before && isSame) return before
    const others = [...(before?.controllers ?? [])].filter((other) => other !== controller)
    if (others.length > 0) return undefined
    const full = `fairlead_function_${name}`
    // The declaration has changed.
    if (before) registry.removeSingleMetric(full)
    const options = { name: full, help, labelNames: ['controller', ...names], registers: [registry] }
    const metric = type === 'Counter' ? new Counter(options) : new Gauge(options)
    const made = { metric, type, labels: names.join(), controllers: new Set<string>() }
    known.set(name, made)
    return made
  }

  return (controller, change) => {
    const found = knownFor(controller, change)
    if (found === undefined) return
    found.controllers.add(controller)
    const labels = { controller, ...change.labels }
    if (found.metric instanceof Counter) found.metric.inc(labels, change.value)
    else found.metric.set(labels, change.value)
  }
}
