import {
  addUsage,
  HOURS_KEPT_DAYS,
  NO_USAGE,
  type PeriodUsage,
  type Usage,
  type UsagePeriod,
  type UsageRow,
  UsageRows,
  type UsageView,
} from '#events'
import { UsageError } from '#process/exit'

/** What one row of a report is about. */
export type UsageDimension = 'function' | 'namespace' | 'hour' | 'day' | 'month'

/** The sum of all usage with these values, in the order of the dimensions. */
export interface UsageSum extends Usage {
  of: readonly string[]
}

const DAY_MS = 86_400_000
/**
 * Hours are kept a day longer, so that a window of this many days is whole. An hour more, because the window is read
 * some time before it is compared.
 */
const HOURLY_MS = (HOURS_KEPT_DAYS - 1) * DAY_MS + DAY_MS / 24

/** Shown in place of the namespace of objects that have none. */
export const NO_NAMESPACE = '-'

const VALUES: Record<UsageDimension, (row: UsageRow, start: string) => string> = {
  function: (row) => row.function,
  namespace: ({ namespace = NO_NAMESPACE }) => namespace,
  hour: (_, start) => `${start}:00Z`,
  day: (_, start) => start.slice(0, 'yyyy-mm-dd'.length),
  month: (_, start) => start.slice(0, 'yyyy-mm'.length),
}

/** Whole hours for a window of two days, whole days for a longer one. Throws a UsageError if there are no such hours. */
export function periodFor(since: Date, now: Date, by: readonly UsageDimension[]): UsagePeriod {
  const period = now.getTime() - since.getTime() <= HOURLY_MS ? 'hour' : 'day'
  if (by.includes('hour') && period === 'day')
    throw new UsageError(`--by hour needs --since ${HOURS_KEPT_DAYS - 1}d or less: older usage is kept by day`)
  return period
}

/** The limit of rows with a namespace, and that of all rows: about 10 MB. */
const MOST_ROWS = [10_000, 20_000] as const

/** Sums by function and namespace, the most CPU time first. */
export async function usageSince(view: UsageView, since: Date, now: Date): Promise<UsageRow[]> {
  const sums = new UsageRows(...MOST_ROWS)
  for await (const { rows } of view.since(periodFor(since, now, []), since)) for (const row of rows) sums.add(row)
  return [...sums].sort((a, b) => b.cpuMs - a.cpuMs)
}

/** Sorts by time if the first dimension is a time, otherwise by CPU time, the most first. */
export async function sumUsage(
  periods: AsyncIterable<PeriodUsage> | Iterable<PeriodUsage>,
  by: readonly UsageDimension[],
): Promise<UsageSum[]> {
  const sums = new Map<string, UsageSum>()
  for await (const { start, rows } of periods)
    for (const row of rows) {
      const of = by.map((dimension) => VALUES[dimension](row, start))
      const key = of.join(' ')
      const sum = sums.get(key) ?? { of, ...NO_USAGE }
      sums.set(key, sum)
      addUsage(sum, row)
    }
  const [first] = by
  const isByTime = first !== 'function' && first !== 'namespace'
  const timeOf = ({ of: [time = ''] }: UsageSum) => (isByTime ? time : '')
  return [...sums.values()].sort((a, b) => timeOf(a).localeCompare(timeOf(b)) || b.cpuMs - a.cpuMs)
}

/** Runs, CPU time, requests, writes and stored bytes, as people read them. */
export const usageCells = ({ runs, cpuMs, requests, writes, storedBytes }: Usage): string[] => [
  String(runs),
  cpuMs < 10_000 ? `${Math.round(cpuMs)}ms` : `${(cpuMs / 1000).toFixed(1)}s`,
  String(requests),
  String(writes),
  bytesText(storedBytes),
]

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

function bytesText(bytes: number): string {
  const power = Math.min(UNITS.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10))
  return `${(bytes / 2 ** (10 * power)).toFixed(power === 0 ? 0 : 1)} ${UNITS[power]}`
}
