import type { DeclaredMetric, ReconcilerSpec } from '#spec'
import type { PlainOutcome } from './outcome.ts'

/** A change of a metric, with its declaration. `labels` has a declared value, or `other`, for each declared label. */
export interface MetricChange extends Pick<DeclaredMetric, 'name' | 'type' | 'help'> {
  labels: Record<string, string>
  value: number
}

type Declaring = Pick<ReconcilerSpec, 'metrics'>

const OTHER = 'other'

/** Returns the changes of the declared metrics of this type. */
export function changesOf(
  { metrics = [] }: Declaring,
  { metrics: reports = [] }: PlainOutcome,
  type: MetricChange['type'],
): MetricChange[] {
  return reports.flatMap(({ name, value, labels }) => {
    const declared = metrics.find((one) => one.name === name && one.type === type)
    if (declared === undefined) return []
    const values = declared.labels.map((label) => {
      const given = labels[label.name] ?? OTHER
      return [label.name, label.values.includes(given) ? given : OTHER]
    })
    return [{ name, type, help: declared.help, value, labels: Object.fromEntries(values) }]
  })
}

/** Whether a change may have this name and these labels. */
export function isDeclared(
  { metrics = [] }: Declaring,
  { name, labels }: Pick<MetricChange, 'name' | 'labels'>,
): boolean {
  const declared = metrics.find((one) => one.name === name)
  return (
    declared?.labels.length === Object.keys(labels).length &&
    declared.labels.every(({ name: label, values }) => [...values, OTHER].includes(labels[label] ?? ''))
  )
}

/** A metric or a label that is not declared is a mistake of the author. So is a counter that goes back. */
export function metricFaults({ metrics = [] }: Declaring, { metrics: reports = [] }: PlainOutcome): string[] {
  return reports.flatMap(({ name, value, labels }) => {
    const declared = metrics.find((one) => one.name === name)
    if (declared === undefined)
      return [`the function returned the metric ${name}, which is not declared: add it to its "metrics"`]
    const known = declared.labels.map((label) => label.name)
    const strange = Object.keys(labels).find((label) => !known.includes(label))
    if (strange !== undefined)
      return [`metric ${name} has no label ${strange}: add it to its declaration, or leave it out`]
    if (declared.type === 'Counter' && value < 0) return [`counter ${name} cannot grow by ${value}: give 0 or more`]
    return []
  })
}
