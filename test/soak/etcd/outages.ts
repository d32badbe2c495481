/** A client had no answer at all: from its first failure to its next success. Times are of one clock, in milliseconds. */
export interface Outage {
  /** How the client finds the cluster. */
  route: string
  /** When the first operation that failed was called. */
  calledAt: number
  /** When that operation failed. */
  failedAt: number
  endedAt: number
  /** The errors of failed operations. */
  errors: string[]
}

/** Something that was done to a cluster. */
export interface Happening {
  what: string
  at: number
  /** The time at which the cluster was observed to match its spec again. */
  wholeAt?: number
}

/** An operation that fails is saved by a retry if one succeeds so soon after the failure. */
const RETRY_MS = 1000

/** A table: what happened, how often, and what clients noticed of it. */
export function outagesByCause(happenings: readonly Happening[], outages: readonly Outage[]): string {
  const causeOf = ({ failedAt }: Outage): string => happenings.findLast(({ at }) => at <= failedAt)?.what ?? 'nothing'
  const byCause = Map.groupBy(outages, causeOf)
  const times = Map.groupBy(happenings, ({ what }) => what)
  const rows = [...new Set([...times.keys(), ...byCause.keys()])].sort().map((what) => {
    const all = byCause.get(what) ?? []
    const unsaved = all.filter((one) => waitOf(one) > RETRY_MS)
    const mended = (times.get(what) ?? []).flatMap(({ at, wholeAt }) => (wholeAt === undefined ? [] : [wholeAt - at]))
    return [
      what,
      times.get(what)?.length ?? 0,
      mended.length === 0 ? '?' : Math.ceil(longest(mended) / 1000),
      all.length,
      longest(all.map(({ calledAt, endedAt }) => endedAt - calledAt)),
      longest(all.map(waitOf)),
      unsaved.length,
      [...new Set(unsaved.map(({ route }) => route))].join(', '),
    ]
  })
  return tableOf([
    [
      'happened',
      'times',
      'whole within, s',
      'outages',
      'longest, ms',
      'after the first failure, ms',
      'not saved by 1 s',
      'of clients by',
    ],
    ...rows,
  ])
}

/** How long a client retries until it is answered. */
const waitOf = ({ failedAt, endedAt }: Outage): number => endedAt - failedAt

/** Returns operations that failed in spite of retries for a second, with the error of the client. */
export const unsavedOf = (outages: readonly Outage[]): string[] =>
  outages
    .filter((one) => waitOf(one) > RETRY_MS)
    .map((one) => `${one.route}: ${Math.round(waitOf(one))} ms: ${[...new Set(one.errors)].join('; ')}`)

const longest = (times: readonly number[]): number => Math.round(Math.max(0, ...times))

function tableOf(rows: readonly (readonly (string | number)[])[]): string {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => String(row[column]).length))) ?? []
  return rows.map((row) => row.map((cell, column) => String(cell).padEnd(widths[column] ?? 0)).join('  ')).join('\n')
}
