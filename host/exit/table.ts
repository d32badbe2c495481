/**
 * Returns columns padded to their widest cell, two spaces apart; the last column is not padded. Each row is one line:
 * line breaks and control characters in a cell become spaces.
 */
export function table(head: string[], unsafeRows: string[][]): string {
  const rows = unsafeRows.map((row) => row.map((cell) => oneLine(cell)))
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)))
  const line = (cells: string[]) =>
    cells
      .map((cell, column) => (column === head.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
      .join('  ')
      .trimEnd()
  return [head, ...rows].map(line).join('\n')
}

/** Formats a duration in milliseconds as kubectl formats ages: `850ms`, `12s`, `3m10s`, `5h2m`, `41d`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))}ms`
  const seconds = Math.floor(ms / 1000)
  if (seconds < 60) return `${seconds}s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 10) return `${minutes}m${seconds % 60}s`
  if (minutes < 180) return `${minutes}m`
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? `${hours}h${minutes % 60}m` : `${Math.floor(hours / 24)}d`
}

/**
 * Returns the text without line breaks and control characters, which could manipulate a terminal, cut to `chars`
 * characters.
 */
export function oneLine(text: string, chars = Number.POSITIVE_INFINITY): string {
  const line = text.replaceAll(/[\p{Cc}\s]+/gu, ' ').trim()
  return line.length > chars ? `${line.slice(0, chars - 1)}…` : line
}
