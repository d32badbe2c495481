import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { type FieldChange, namespacedName, type RunRecord } from '#contracts'
import type { Reconciler } from '#sdk'
import { type ReplayedRun, replayRun } from './replay.ts'

/**
 * Returns recorded runs as rows of a test runner: each rejects if the function decides differently than in the record.
 * A file contains the output of `fairlead runs get`; `*` in its name matches any characters. Throws an Error if no file
 * matches.
 *
 * @example
 * import { replayOf } from 'fairlead/testing'
 * import { website } from './website.ts'
 * const missing = () => replayOf(website, 'runs/missing.json')
 * let message = ''
 * try {
 *   missing()
 * } catch (error) {
 *   message = (error as Error).message
 * }
 * message // => 'there is no file runs/missing.json: fairlead runs get ID > FILE makes one'
 */
export function replayOf(reconciler: Reconciler, files: string): [run: string, holds: () => Promise<void>][] {
  const found = filesOf(files)
  if (found.length === 0) throw new Error(`there is no file ${files}: fairlead runs get ID > FILE makes one`)
  return found.flatMap((file) =>
    recordsIn(readFileSync(file, 'utf8'), file).map((record): [string, () => Promise<void>] => [
      `${file}: ${titleOf(record)}`,
      async () => demandSame(await replayRun(demandFor(reconciler, record), record)),
    ]),
  )
}

function filesOf(pattern: string): string[] {
  const name = basename(pattern)
  if (!name.includes('*')) return existsSync(pattern) ? [pattern] : []
  const parts = name.split('*').map((part) => part.replaceAll(/[\\^$.|?+()[\]{}]/g, String.raw`\$&`))
  const isNamed = new RegExp(`^${parts.join('.*')}$`)
  const folder = dirname(pattern)
  return readdirSync(folder)
    .filter((file) => isNamed.test(file))
    .sort()
    .map((file) => join(folder, file))
}

/**
 * Reads records of runs: one record, a list of records, or one per line. Throws an Error, which names `file`, for other
 * contents.
 *
 * @example
 * import { recordsIn } from 'fairlead/testing'
 * recordsIn('[{"id":"1","laps":[],"leftOut":[]}]', 'runs.json').length // => 1
 */
export function recordsIn(text: string, file: string): RunRecord[] {
  const records =
    parsed(text) ??
    text
      .split('\n')
      .filter((line) => line.trim() !== '')
      .map(parsed)
  return [records].flat().map((record) => {
    const { id, laps, leftOut } = (record ?? {}) as Partial<RunRecord>
    if (typeof id === 'string' && Array.isArray(laps) && Array.isArray(leftOut)) return record as RunRecord
    throw new Error(`${file} has an entry that is not a record of a run: give the output of fairlead runs get`)
  })
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}

const titleOf = ({ reconciler, namespace, name, endedAt }: RunRecord): string =>
  `${reconciler} ${namespacedName({ namespace, name })}, ${endedAt}`

function demandFor(reconciler: Reconciler, record: RunRecord): Reconciler {
  if ([reconciler.name, reconciler.identity].includes(record.reconciler)) return reconciler
  throw new Error(`run ${record.id} is of the reconciler ${record.reconciler}, not of ${reconciler.name}`)
}

function demandSame({ calls }: ReplayedRun): void {
  const lines = calls.flatMap(({ call, differences, unstable }) => [
    ...differences.map((one) => `call ${call}: ${changeText(one)}`),
    ...unstable.map((path) => `call ${call}: ${path} differs between two calls on the same input`),
  ])
  if (lines.length > 0) throw new Error(`the function decides otherwise than it did:\n${lines.join('\n')}`)
}

/**
 * Returns a difference as one line: `+` for an added field, `-` for a removed one, `~` for a changed one.
 *
 * @example
 * import { changeText } from 'fairlead/testing'
 * changeText({ path: '.status.size', before: 1, after: 2 }) // => '~ .status.size: 1 → 2'
 */
export function changeText({ path, ...values }: FieldChange): string {
  if (!('before' in values)) return `+ ${path}: ${JSON.stringify(values.after)}`
  if (!('after' in values)) return `- ${path}: ${JSON.stringify(values.before)}`
  return `~ ${path}: ${JSON.stringify(values.before)} → ${JSON.stringify(values.after)}`
}
