import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Finding } from './lint.ts'

const FILE = join(import.meta.dirname, 'known.json')

/** How often each file has each pattern. */
type Counts = Record<string, Record<string, number>>

/** Findings that a file had when they were recorded last. */
export const knownCounts = (): Counts => JSON.parse(readFileSync(FILE, 'utf8')) as Counts

/**
 * The findings of those files and patterns that have more of them than are known. A pattern whose findings have not become
 * more in all files together has only moved.
 */
export function newFindings(findings: readonly Finding[], known: Counts): Finding[] {
  const counts = countsOf(findings)
  const total = (all: Counts, pattern: string) =>
    Object.values(all).reduce((sum, patterns) => sum + (patterns[pattern] ?? 0), 0)
  return findings.filter(
    ({ file, pattern }) =>
      (counts[file]?.[pattern] ?? 0) > (known[file]?.[pattern] ?? 0) && total(counts, pattern) > total(known, pattern),
  )
}

/** Records the findings that are left. */
export function record(findings: readonly Finding[]): void {
  writeFileSync(FILE, `${JSON.stringify(countsOf(findings), null, 2)}\n`)
}

function countsOf(findings: readonly Finding[]): Counts {
  const counts: Counts = {}
  for (const { file, pattern } of findings) {
    counts[file] ??= {}
    counts[file][pattern] = (counts[file][pattern] ?? 0) + 1
  }
  return counts
}
