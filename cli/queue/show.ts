import { duration, oneLine, UsageError } from '#host/exit'
import {
  adviceOn,
  called,
  demandReconciler,
  elsewhere,
  keyFor,
  keyNameOf,
  orphansIn,
  placeInNamespace,
  type QueueView,
  type Row,
  toRow,
  withOrphan,
} from '#inspect/keys'

export interface ShowOptions {
  reconciler: string
  key: string
  namespace?: string
  output: 'text' | 'json'
}

/** Returns all known facts about one key. */
export async function showKey({ queue, events }: QueueView, options: ShowOptions, now: Date): Promise<string> {
  const { reconciler, output } = options
  const orphans = orphansIn(events)
  const name = keyNameOf(options.key, options.namespace)
  const isGone = await orphans.isGone(reconciler)
  const orphan = isGone ? await orphans.find(reconciler, name) : undefined
  // The queue of a deleted Reconciler is removed some minutes later.
  if (orphan === undefined) await demandReconciler(queue, reconciler)
  const entries = await queue.find(keyFor(reconciler, name))
  const rows = await Promise.all(entries.map((entry) => withOrphan(toRow(entry), orphans)))
  if (output === 'json') return JSON.stringify(rows, null, 2)
  const shown = rows.map((row) => described(row, now))
  const advice = orphan && adviceOn(reconciler, orphan)
  if (rows.length > 0) return [...shown, ...(advice === undefined ? [] : [advice])].join('\n\n')
  const hint = await elsewhere(queue, reconciler, name)
  if (hint !== '') throw new UsageError(`${called({ reconciler, ...name })} is idle${hint}`)
  if (advice !== undefined) return advice
  const ends = isGone
    ? `there is no Reconciler ${reconciler}, so nothing runs it`
    : 'it runs when it changes, or by queue run'
  return `${called({ reconciler, ...name })} is idle: ${ends}.`
}

function described(row: Row, now: Date): string {
  const ago = (time: string) => `${time} (${duration(now.getTime() - Date.parse(time))} ago)`
  const ahead = (time = '') => `${time} (in ${duration(Date.parse(time) - now.getTime())})`
  const lines: [string, string][] = [
    ['Reconciler', row.reconciler],
    ['Namespace', row.namespace ?? '-'],
    ['Name', row.name],
    ['State', row.state],
    ['Since', ago(row.since)],
    ['Failures', `${row.attempt} in a row`],
    ['Lane', row.lane],
  ]
  if (row.state === 'queued') lines.push(['Place', `${row.position} in its lane${placeInNamespace(row)}`])
  if (row.state === 'running') {
    lines.push(['By', row.by ?? '-'], ['Owner', row.owner ?? '-'], ['Lease until', ahead(row.until)])
    lines.push(['Changed', row.dirty ? 'since the run began: it runs once more' : 'no'])
  }
  if (row.state === 'waiting') lines.push(['Until', ahead(row.until)], ['Because', BECAUSE[row.reason ?? ''] ?? '-'])
  if (row.state === 'parked')
    lines.push(['Until', 'it changes, or is retried'], ['Because', BECAUSE[row.reason ?? ''] ?? '-'])
  if (row.error !== undefined) lines.push(['Last error', oneLine(row.error)])
  const width = Math.max(...lines.map(([title]) => title.length)) + 1
  return lines.map(([title, value]) => `${`${title}:`.padEnd(width)}  ${value}`).join('\n')
}

const BECAUSE: Record<string, string> = {
  Requeue: 'the function asked for that time',
  Error: 'its last run failed',
  Terminal: 'its last run failed for good',
  Withdrawn: 'it was parked by hand',
}
