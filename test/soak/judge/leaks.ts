import { isProbe } from './history.ts'

/** The contents of the server after all work is done. */
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
  const releases = subjects.filter((subject) => !isProbe(subject)).length
  if (releases > workerLives) wrong.push(`${releases} releases are left, of only ${workerLives} processes`)
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

/** The memory of one process over its life, in MiB, every five seconds. */
export interface Memory {
  name: string
  pid: number
  /** What is reachable. */
  heap: number[]
  resident: number[]
}

/** Fewer samples give no result. */
const LEAST_SAMPLES = 16

/** It grew: the least of the last quarter is well above that of the second one, when all was warm. */
export function grewIn({ name, pid, heap }: Memory): string | undefined {
  if (heap.length < LEAST_SAMPLES) return undefined
  const quarter = Math.floor(heap.length / 4)
  const [early, late] = [least(heap.slice(quarter, 2 * quarter)), least(heap.slice(-quarter))]
  return late > early * 1.25 + 4
    ? `memory of ${name} (${pid}) grew from ${early.toFixed(0)} to ${late.toFixed(0)} MiB`
    : undefined
}

const least = (sizes: readonly number[]): number => sizes.reduce((one, other) => Math.min(one, other))

export const median = (numbers: readonly number[]): number =>
  quantile(
    numbers.toSorted((a, b) => a - b),
    0.5,
  )

/** Returns a quantile of sorted numbers. */
export const quantile = (sorted: readonly number[], q: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN
