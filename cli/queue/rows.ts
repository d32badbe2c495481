import { duration, table } from '#host/exit'
import { detail, type Row } from '#inspect/keys'

export type Format = 'table' | 'wide' | 'json'

const ERROR_CHARS = 60

export function rowTable(rows: readonly Row[], now: Date, format: Format): string {
  const wide = format === 'wide'
  const head = [
    'RECONCILER',
    'NAMESPACE',
    'NAME',
    'STATE',
    'SINCE',
    'ATTEMPT',
    ...(wide ? ['LANE', 'OWNER'] : []),
    'DETAIL',
  ]
  return table(
    head,
    rows.map((row) => [
      row.reconciler,
      row.namespace ?? '-',
      row.name,
      row.state,
      duration(now.getTime() - Date.parse(row.since)),
      String(row.attempt),
      ...(wide ? [row.lane, row.owner ?? '-'] : []),
      detail(row, now, wide ? Number.POSITIVE_INFINITY : ERROR_CHARS),
    ]),
  )
}
