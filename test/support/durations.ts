import { readFileSync, writeFileSync } from 'node:fs'
import { relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const FILE = resolve(ROOT, 'test/durations.json')
const recorded = JSON.parse(readFileSync(FILE, 'utf8')) as Record<string, number>

/** `test/queue/laws.test.ts`, whatever folder the repository is in. */
const nameOf = (file: string): string => relative(ROOT, resolve(ROOT, file))

/** Seconds that the tests of a file took when durations were last recorded; undefined for a new file. */
export const durationOf = (file: string): number | undefined => recorded[nameOf(file)]

/** Replaces the recorded durations. */
export function recordDurations(seconds: ReadonlyMap<string, number>): void {
  const rows = [...seconds].map(([file, value]) => [nameOf(file), Number(value.toFixed(1))] as const)
  const sorted = rows.toSorted(([one], [other]) => one.localeCompare(other))
  writeFileSync(FILE, `${JSON.stringify(Object.fromEntries(sorted), undefined, 2)}\n`)
}
