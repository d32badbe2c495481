/** What is left on the server when nothing is to be done. */
export interface Remains {
  /** Subjects of the queue's stream. */
  subjects: readonly string[]
  messages: number
  consumers: readonly { name: string; pending: number; unacknowledged: number; waitingPulls: number }[]
  expectedConsumers: number
  /** Workers that could have left a message of their last release. */
  workerLives: number
}

export function remainsOf({ subjects, messages, consumers, expectedConsumers, workerLives }: Remains): string[] {
  const wrong = subjects
    .filter((subject) => subject.split('.')[1] !== 'done')
    .map((subject) => `${subject} is left on the idle stream`)
  if (messages > workerLives) wrong.push(`${messages} messages are left, of only ${workerLives} processes`)
  if (messages !== subjects.length) wrong.push(`${messages} messages are left on ${subjects.length} subjects`)
  if (consumers.length !== expectedConsumers)
    wrong.push(
      `${consumers.length} consumers instead of ${expectedConsumers}: ${consumers.map(({ name }) => name).join(', ')}`,
    )
  for (const { name, pending, unacknowledged, waitingPulls } of consumers) {
    if (pending + unacknowledged > 0)
      wrong.push(`consumer ${name} counts ${pending} pending and ${unacknowledged} unacknowledged messages`)
    if (waitingPulls > 0) wrong.push(`consumer ${name} has ${waitingPulls} pull requests of nobody`)
  }
  return wrong
}

/** Resident memory of one process over its life, MiB. */
export interface Memory {
  name: string
  samples: readonly number[]
}

/** It grew: the median of the last quarter is well above that of the second one, when all was warm. */
export function grewIn({ name, samples }: Memory): string | undefined {
  if (samples.length < 40) return undefined
  const quarter = Math.floor(samples.length / 4)
  const early = median(samples.slice(quarter, 2 * quarter))
  const late = median(samples.slice(-quarter))
  return late > early * 1.25 + 16
    ? `memory of ${name} grew from ${early.toFixed(0)} to ${late.toFixed(0)} MiB`
    : undefined
}

export const median = (numbers: readonly number[]): number =>
  quantile(
    numbers.toSorted((a, b) => a - b),
    0.5,
  )

/** Of numbers in order. */
export const quantile = (sorted: readonly number[], q: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN
