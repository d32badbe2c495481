import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { Counter, type Registry } from 'prom-client'
import type { RunLog, Runnable } from '#contracts'
import {
  declareUsage,
  startOf,
  type Usage,
  type UsagePeriod,
  type UsageRow,
  UsageRows,
  type UsageWriter,
  usageWriter,
} from '#events'
import type { Config } from './config.ts'
import type { Streams } from './connections.ts'
import { prefixOf } from './nats.ts'
import type { UsageMeter } from './usage-meter.ts'

/** The longest time for which usage is only in memory, and the most that is lost when the process is killed. */
const STORE_EVERY_MS = 60_000
const HOUR_MS = 3_600_000
/** The limit of rows of one period. Above it, the half that used the least CPU is added to the rows OTHER. */
const MOST_ROWS = 500
/** The limit of functions in a message, which has 400 KB then, and in metrics. */
const MOST_FUNCTIONS = 2000
/** The limit of periods that wait while NATS does not answer: a day and a half of hours. */
const MOST_PERIODS = 36
const PERIODS: readonly UsagePeriod[] = ['hour', 'day']

interface Open {
  period: UsagePeriod
  start: string
  rows: UsageRows
  /** Its rows are not stored. */
  isDirty: boolean
}

export interface UsageStoreDeps {
  meter: Pick<UsageMeter, 'take' | 'onUse'>
  /** Creates the stream if it does not exist. */
  declare: () => Promise<void>
  write: UsageWriter
  log: Pick<RunLog, 'warn'>
  now?: () => number
}

/**
 * Adds up what this process uses, for each hour and each day, and stores it: a minute after a use, and at the end of each
 * hour. A process without work stores one small message for the hour and one for the day, each hour.
 */
export class UsageStore implements Runnable {
  readonly #deps: UsageStoreDeps
  readonly #now: () => number
  /** Unique, because a container that starts again has its host name and process ID again. */
  readonly #id = randomUUID()
  readonly #periods = new Map<string, Open>()
  readonly #totals = new UsageRows(0, MOST_FUNCTIONS)
  #takenAt: number
  #isDeclared = false
  /** Failures in a row. */
  #failures = 0
  #storing: Promise<void> = Promise.resolve()
  #timer: NodeJS.Timeout | undefined
  #isSoon = false
  #isEnded = false

  constructor(deps: UsageStoreDeps) {
    this.#deps = deps
    this.#now = deps.now ?? Date.now
    this.#takenAt = this.#now()
    deps.meter.onUse(() => this.#used())
  }

  async run(signal: AbortSignal): Promise<void> {
    this.#storeWithin(HOUR_MS)
    if (!signal.aborted) await once(signal, 'abort')
  }

  /** Returns what each function used since the start of the process. */
  totals(): Iterable<Readonly<UsageRow>> {
    this.#take()
    return this.#totals
  }

  /** Resolves when everything that was used up to now is stored, or when NATS has not accepted it. */
  store(): Promise<void> {
    this.#storing = this.#storing.then(() => this.#storeNow())
    return this.#storing
  }

  /** Stores for the last time, and takes no more. */
  async end(): Promise<void> {
    this.#isEnded = true
    clearTimeout(this.#timer)
    await this.store()
  }

  #used(): void {
    if (this.#isSoon) return
    this.#isSoon = true
    this.#storeWithin(this.#soonMs)
  }

  /** Longer after failures, because NATS may refuse for good. */
  get #soonMs(): number {
    return STORE_EVERY_MS * 2 ** this.#failures
  }

  /** The end of an hour comes earlier, so that no message has two hours. */
  #storeWithin(ms: number): void {
    clearTimeout(this.#timer)
    if (this.#isEnded) return
    const untilHour = HOUR_MS - (this.#now() % HOUR_MS)
    this.#timer = setTimeout(() => void this.store(), Math.min(ms, untilHour)).unref()
  }

  async #storeNow(): Promise<void> {
    const { declare, write, log } = this.#deps
    this.#take()
    this.#isSoon = false
    try {
      if (!this.#isDeclared) await declare()
      this.#isDeclared = true
      for (const [key, open] of this.#periods) {
        const { period, start, rows, isDirty } = open
        open.isDirty = false
        if (isDirty)
          await write(this.#id, { period, start, rows: [...rows] }).catch((error: unknown) => {
            open.isDirty = true
            throw error
          })
        if (!open.isDirty && start !== startOf(period, new Date(this.#now()))) this.#periods.delete(key)
      }
      this.#failures = 0
    } catch (error) {
      this.#isDeclared = false
      if (this.#failures++ === 0) log.warn({ err: error }, 'usage is not stored: it waits in memory')
    }
    this.#storeWithin(this.#failures > 0 || this.#isSoon ? this.#soonMs : HOUR_MS)
  }

  /** What was used since the last time counts for the hour and day in which that time was. */
  #take(): void {
    const from = new Date(this.#takenAt)
    this.#takenAt = this.#now()
    const rows = this.#deps.meter.take()
    for (const row of rows) this.#totals.add({ ...row, namespace: undefined })
    for (const period of PERIODS) {
      const open = this.#opened(period, startOf(period, from))
      open.isDirty = true
      for (const row of rows) open.rows.add(row)
      if (open.rows.size > MOST_ROWS) open.rows = folded(open.rows)
    }
  }

  #opened(period: UsagePeriod, start: string): Open {
    const open = this.#periods.get(start) ?? { period, start, rows: new UsageRows(), isDirty: true }
    this.#periods.set(start, open)
    const [oldest = ''] = this.#periods.keys()
    if (this.#periods.size > MOST_PERIODS) this.#periods.delete(oldest)
    return open
  }
}

/** Keeps the rows that used the most CPU. The sums of each function stay the same, up to MOST_FUNCTIONS. */
export function folded(rows: Iterable<UsageRow>): UsageRows {
  const kept = new UsageRows(MOST_ROWS / 2, MOST_FUNCTIONS)
  for (const row of [...rows].toSorted((a, b) => b.cpuMs - a.cpuMs)) kept.add(row)
  // New rows are compared with these the next time, and have a row of their own until then.
  const open = new UsageRows()
  for (const row of kept) open.add(row)
  return open
}

const METRICS: [name: string, help: string, value: (usage: Usage) => number][] = [
  ['cpu_seconds', 'CPU time by the function that it was used for', ({ cpuMs }) => cpuMs / 1000],
  ['requests', 'Requests to the API server by the function that they were sent for', ({ requests }) => requests],
  ['writes', 'Writes that the API server accepted, by function', ({ writes }) => writes],
  ['stored_bytes', 'Bytes stored in EVENTS and RUNS, by function', ({ storedBytes }) => storedBytes],
]

/** Reports the usage of this process by function, not by namespace: namespaces would be labels without a limit. */
export function usageMetrics(registry: Registry, store: Pick<UsageStore, 'totals'>): void {
  for (const [name, help, value] of METRICS) {
    const counter: Counter = new Counter({
      name: `fairlead_usage_${name}_total`,
      help,
      labelNames: ['controller'],
      registers: [registry],
      collect() {
        counter.reset()
        for (const usage of store.totals()) counter.inc({ controller: usage.function }, value(usage))
      },
    })
  }
}

export interface OpenUsageOptions {
  raiseReplicas: boolean
  log: Pick<RunLog, 'warn'>
}

/** Stores what the meter has, with these settings. */
export function openUsage(
  config: Pick<Config, 'FAIRLEAD_PREFIX' | 'FAIRLEAD_REPLICAS'>,
  { js }: Pick<Streams, 'js'>,
  meter: UsageMeter,
  { raiseReplicas, log }: OpenUsageOptions,
): UsageStore {
  const options = { ...prefixOf(config), replicas: config.FAIRLEAD_REPLICAS, raiseReplicas }
  return new UsageStore({
    meter,
    declare: () => declareUsage(js, options),
    write: usageWriter(js, config.FAIRLEAD_PREFIX),
    log,
  })
}
