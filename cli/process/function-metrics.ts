import { Counter, Gauge, type Registry } from 'prom-client'
import type { MetricChange } from '#reconcile'

interface Series {
  labels: Record<string, string>
  value: number
  /** The key of the object that has set a gauge last. */
  by?: string
}

/**
 * The metrics that functions report, with the prefix fairlead_function_ and the label `controller`. Two Reconcilers may use
 * one name, each with labels of its own: its type follows from the name. Declarations limit the number of series.
 */
export interface FunctionMetrics {
  counted: (controller: string, change: MetricChange) => void
  /** Sets the gauges of an object. Those that it has set before and no other object has set since are removed. */
  measured: (controller: string, key: string, changes: readonly MetricChange[]) => void
  /** Removes the series of the Reconciler that its declaration does not have. */
  declared: (controller: string, has: (series: Pick<MetricChange, 'name' | 'labels'>) => boolean) => void
}

export function functionMetrics(registry: Registry): FunctionMetrics {
  /** By controller, the name of a metric, and labels. */
  const all = new Map<string, Map<string, Map<string, Series>>>()

  const show = ({ name, type, help }: MetricChange): void => {
    const full = `fairlead_function_${name}`
    if (registry.getSingleMetric(full) !== undefined) return
    const metric = new (type === 'Counter' ? Counter : Gauge)({ name: full, help, registers: [registry] })
    const empty = metric.get.bind(metric)
    metric.get = async () => ({ ...(await empty()), values: seriesOf(name) })
  }

  const seriesOf = (name: string) =>
    [...all].flatMap(([controller, metrics]) =>
      Array.from(metrics.get(name)?.values() ?? [], ({ labels, value }) => ({
        labels: { controller, ...labels },
        value,
      })),
    )

  const set = (controller: string, change: MetricChange, valueOf: (before: number) => Omit<Series, 'labels'>): void => {
    const { name, labels } = change
    const metrics = all.get(controller) ?? new Map<string, Map<string, Series>>()
    const series = metrics.get(name) ?? new Map<string, Series>()
    const id = JSON.stringify(labels)
    all.set(controller, metrics.set(name, series.set(id, { labels, ...valueOf(series.get(id)?.value ?? 0) })))
    show(change)
  }

  const removeUnless = (controller: string, isKept: (name: string, series: Series) => boolean): void => {
    const metrics = all.get(controller)
    for (const [name, series] of metrics ?? []) {
      for (const [id, one] of series) if (!isKept(name, one)) series.delete(id)
      if (series.size > 0) continue
      metrics?.delete(name)
      if (![...all.values()].some((other) => other.has(name))) registry.removeSingleMetric(`fairlead_function_${name}`)
    }
    if (metrics?.size === 0) all.delete(controller)
  }

  return {
    counted: (controller, change) => set(controller, change, (before) => ({ value: before + change.value })),
    measured(controller, key, changes) {
      removeUnless(controller, (_name, { by }) => by !== key)
      for (const change of changes) set(controller, change, () => ({ value: change.value, by: key }))
    },
    declared: (controller, has) => removeUnless(controller, (name, { labels }) => has({ name, labels })),
  }
}
