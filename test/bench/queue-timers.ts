import { setTimeout as sleep } from 'node:timers/promises'
import type { Lease, WorkQueue } from '#queue'
import { percentiles } from './median.ts'
import { FN, inFlight, SLOTS } from './queue-support.ts'

/** Ends each key's first run with a timer; how late the second began, in milliseconds, for each that has. */
class Timers {
  readonly lateness: number[] = []
  readonly #queue: WorkQueue
  readonly #dueOf: (key: string) => number
  #armed = 0

  constructor(queue: WorkQueue, dueOf: (key: string) => number) {
    this.#queue = queue
    this.#dueOf = dueOf
    queue.serve({ reconciler: FN, slots: SLOTS, handler: (lease) => this.#run(lease) })
  }

  async arm(count: number): Promise<void> {
    const until = this.#armed + count
    await inFlight(count, (index) => this.#queue.enqueue(FN, keyOf(until - count + index)))
    while (this.#armed < until) await sleep(10)
  }

  async fired(count: number): Promise<void> {
    while (this.lateness.length < count) await sleep(10)
  }

  async #run({ key, fired }: Lease) {
    const due = this.#dueOf(key)
    if (fired) {
      this.lateness.push(Date.now() - due)
      return { kind: 'done' as const }
    }
    this.#armed++
    return { kind: 'requeue' as const, at: new Date(due) }
  }
}

const keyOf = (index: number) => `n.t${index}`
const indexOf = (key: string) => Number(key.slice('n.t'.length))
const HOUR_MS = 3_600_000

/** Measures the lateness of `due` timers that fire evenly over some seconds, among `armed` ones. */
export async function latenessAmong(queue: WorkQueue, armed: number, due: number, seconds: number): Promise<string> {
  const step = (seconds * 1000) / due
  let first = Number.POSITIVE_INFINITY
  const timers = new Timers(queue, (key) =>
    indexOf(key) < armed - due ? Date.now() + HOUR_MS : first + indexOf(key) * step,
  )
  await timers.arm(armed - due)
  first = Date.now() + 2000 + due / 2 - (armed - due) * step
  await timers.arm(due)
  await timers.fired(due)
  return percentiles(timers.lateness, 0)
}

/** All at one moment: also the time until the last one runs. */
export async function latenessAtOnce(queue: WorkQueue, count: number): Promise<string> {
  const due = Date.now() + 2000 + count / 2
  const timers = new Timers(queue, () => due)
  await timers.arm(count)
  await timers.fired(count)
  return `${percentiles(timers.lateness, 0)}, the last ${Math.max(...timers.lateness)}`
}
