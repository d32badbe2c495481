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
  await declareStream(js, config, { raiseReplicas, createdWith: { ...LIMITS, compression: 's2' } })
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
   * Returns what all processes used in the periods that begin at this time or later. Throws NoUsageError if the stream
   * does not exist.
   */
  since(period: UsagePeriod, since: Date): Promise<PeriodUsage[]>
}

export function viewUsage(js: JetStream, prefix?: string): UsageView {
  const { stream, root } = streamNames(prefix, 'USAGE')
  return {
    stream,
    async since(period, since) {
      if ((await findStream(js, stream)) === undefined)
        throw new NoUsageError(
          `there is no stream ${stream} here: bridges and dispatchers make it within a minute; or is this another NATS (--nats), or another --prefix?`,
        )
      const first = startOf(period, since)
      // A message that is replaced between two pages is read twice: the later one counts.
      const latest = new Map<string, PeriodUsage>()
      for await (const message of js.scan(stream, `${root}usage.${period}.>`, {
        since: new Date(`${startOf('day', since)}T00:00:00Z`),
      })) {
        const usage = usageIn(message)
        if (usage !== undefined && usage.start >= first) latest.set(message.subject, usage)
      }
      return [...latest.values()]
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
