import { declareStream, findStream, type JetStream, type StoredMessage } from '#nats'
import { streamNames } from './stream.ts'

/** Thrown if no usage is stored under these names. */
export class NoUsageError extends Error {
  override readonly name = 'NoUsageError'
}

export interface Usage {
  /** Runs that have ended. */
  runs: number
  /** CPU time of user and system, in milliseconds. */
  cpuMs: number
  /** Requests to the API server, answered or not. */
  requests: number
  /** Requests that write, and that the API server has accepted. */
  writes: number
  /** Bytes of messages that were stored in EVENTS and RUNS. */
  storedBytes: number
}

/** What the objects of one function used in one namespace. `namespace` is undefined for objects without a namespace. */
export interface UsageRow extends Usage {
  function: string
  namespace?: string | undefined
}

export const NO_USAGE: Usage = { runs: 0, cpuMs: 0, requests: 0, writes: 0, storedBytes: 0 }
export const USAGE_FIELDS = Object.keys(NO_USAGE) as (keyof Usage)[]

export function addUsage(sum: Usage, more: Usage): void {
  for (const field of USAGE_FIELDS) sum[field] += more[field]
}

/** What a row is about. */
export type UsageOf = Pick<UsageRow, 'function' | 'namespace'>

/**
 * The namespace of the sum of the namespaces of a function that have no row of their own, and the function of the sum of
 * functions that have none. The names of Reconcilers have no parentheses.
 */
export const OTHER = '(other)'

/**
 * Sums by function and namespace, in a limited number of rows: further namespaces share the row OTHER of their function,
 * and then further functions the row of the function OTHER. All rows together are always everything that was added.
 */
export class UsageRows implements Iterable<Readonly<UsageRow>> {
  readonly #mostNamespaces: number
  readonly #most: number
  readonly #rows = new Map<string, UsageRow>()

  /** From so many rows on, a row is added only for a function; from `most` on, for none. Left out: without limit. */
  constructor(mostNamespaces = Number.POSITIVE_INFINITY, most = mostNamespaces) {
    this.#mostNamespaces = mostNamespaces
    this.#most = most
  }

  get size(): number {
    return this.#rows.size
  }

  add(row: UsageRow): void {
    addUsage(this.of(row), row)
  }

  /** Returns the row to add to. */
  of({ function: name, namespace }: UsageOf): UsageRow {
    const key = `${name} ${namespace ?? ''}`
    const known = this.#rows.get(key)
    if (known !== undefined) return known
    if (this.size >= this.#mostNamespaces && namespace !== undefined && namespace !== OTHER)
      return this.of({ function: name, namespace: OTHER })
    // The few rows that belong to no function stay rows of their own.
    if (this.size >= this.#most && !name.startsWith('(')) return this.of({ function: OTHER })
    const row = { function: name, namespace, ...NO_USAGE }
    this.#rows.set(key, row)
    return row
  }

  [Symbol.iterator](): Iterator<Readonly<UsageRow>> {
    return this.#rows.values()
  }
}

export type UsagePeriod = 'hour' | 'day'

/** What one process used in one hour or day. */
export interface PeriodUsage {
  period: UsagePeriod
  /** The beginning of the period in UTC: `2026-01-31T12` or `2026-01-31`. */
  start: string
  rows: readonly UsageRow[]
}

export const startOf = (period: UsagePeriod, time: Date): string =>
  time.toISOString().slice(0, period === 'hour' ? 'yyyy-mm-ddThh'.length : 'yyyy-mm-dd'.length)

export interface UsageOptions {
  prefix?: string
  /** Left out: an existing stream keeps its number, a new stream gets one. */
  replicas?: 1 | 3
  /** Raises the replicas of an existing stream to that number. Needs the permission to update the stream. */
  raiseReplicas?: boolean
}

const DAY_SECONDS = 86_400
const PERIOD_MS: Record<UsagePeriod, number> = { hour: 3_600_000, day: DAY_SECONDS * 1000 }
export const HOURS_KEPT_DAYS = 3
/** The limits of a new stream. They do not change an existing stream. */
const LIMITS = { max_age: 400 * DAY_SECONDS * 1e9, max_bytes: 64 * 2 ** 20 }

/** Declares one stream with one message for each process and period. NATS drops the oldest ones by age and by bytes. */
export async function declareUsage(js: JetStream, { prefix, replicas, raiseReplicas }: UsageOptions): Promise<void> {
  const { stream, root } = streamNames(prefix, 'USAGE')
  const config: Parameters<typeof declareStream>[1] = {
    name: stream,
    subjects: [`${root}usage.>`],
    retention: 'limits',
    storage: 'file',
    discard: 'old',
    max_msgs_per_subject: 1,
    allow_direct: true,
    allow_msg_ttl: true,
    ...(replicas === undefined ? undefined : { num_replicas: replicas }),
  }
  await declareStream(js, config, { raiseReplicas, createdWith: LIMITS })
}

/**
 * Stores what the process with this ID used in a period up to now. It replaces what the process has stored for the period,
 * so that a repetition counts once.
 */
export type UsageWriter = (id: string, usage: PeriodUsage) => Promise<void>

export function usageWriter(js: JetStream, prefix: string | undefined): UsageWriter {
  const { root } = streamNames(prefix, 'USAGE')
  return async (id, { period, start, rows }) => {
    const ttl = period === 'hour' ? { 'Nats-TTL': `${HOURS_KEPT_DAYS * DAY_SECONDS}s` } : {}
    await js.publish(
      `${root}usage.${period}.${start}.${id}`,
      JSON.stringify({ period, start, rows: rows.map(toList) }),
      ttl,
    )
  }
}

/** Reads USAGE. It declares nothing and writes nothing. */
export interface UsageView {
  readonly stream: string
  /**
   * Reads what each process used in each of the periods that begin at this time or later. Throws NoUsageError if the
   * stream does not exist.
   */
  since(period: UsagePeriod, since: Date): AsyncIterable<PeriodUsage>
}

export function viewUsage(js: JetStream, prefix?: string): UsageView {
  const { stream, root } = streamNames(prefix, 'USAGE')
  return {
    stream,
    async *since(period, since) {
      if ((await findStream(js, stream)) === undefined)
        throw new NoUsageError(
          `there is no stream ${stream} here: bridges and dispatchers make it within a minute; or is this another NATS (--nats), or another --prefix?`,
        )
      const first = startOf(period, since)
      // Processes replace their messages of this period and of the one before. If that happens between two pages, a message
      // is read twice, and the later one counts.
      const open = startOf(period, new Date(Date.now() - PERIOD_MS[period]))
      const latest = new Map<string, PeriodUsage>()
      for await (const message of js.scan(stream, `${root}usage.${period}.>`, {
        since: new Date(`${startOf('day', since)}T00:00:00Z`),
      })) {
        const usage = usageIn(message)
        if (usage === undefined || usage.start < first) continue
        if (usage.start < open) yield usage
        else latest.set(message.subject, usage)
      }
      yield* latest.values()
    },
  }
}

/** A row as it is stored, in half the bytes: function, namespace, and the figures in the order of USAGE_FIELDS. */
const toList = ({ function: name, namespace, ...usage }: UsageRow): unknown[] => [
  name,
  namespace ?? null,
  ...USAGE_FIELDS.map((field) => Math.round(usage[field] * 1000) / 1000),
]

/** Returns the usage in a message. Undefined: another program has stored the message. */
function usageIn({ data }: StoredMessage): PeriodUsage | undefined {
  try {
    const { period, start, rows } = JSON.parse(Buffer.from(data).toString())
    if (typeof start !== 'string' || !Array.isArray(rows)) return undefined
    return { period, start, rows: rows.map(toRow) }
  } catch {
    return undefined
  }
}

/** Throws if the value is no row. A version that has further figures appends them. */
function toRow([name, namespace, ...values]: unknown[]): UsageRow {
  const usage = { ...NO_USAGE }
  for (const [index, field] of USAGE_FIELDS.entries()) usage[field] = Number(values[index] ?? 0)
  if (typeof name !== 'string' || Object.values(usage).some(Number.isNaN)) throw new TypeError('no row of usage')
  return { function: name, ...(typeof namespace === 'string' && { namespace }), ...usage }
}
