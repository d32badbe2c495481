import type { RunRecord, RunResult } from '#contracts'
import type { RunsFilter, RunsView, StoredRun } from '#events'
import { causesOf } from '#host/history'
import { keyNameOf } from '../keys/select.ts'

/** Which runs a command is about. */
export interface RunSelection {
  reconciler?: string | undefined
  /** `name` or `namespace/name`; left out: all. */
  object?: string | undefined
  namespace?: string | undefined
  /** Empty: all. */
  results: readonly RunResult[]
  /** Ended then or later. */
  since?: Date | undefined
}

export function filterOf({ reconciler, object, namespace }: RunSelection): RunsFilter {
  const key = object === undefined ? undefined : keyNameOf(object, namespace)
  const where = key?.namespace ?? namespace
  return { reconciler, namespace: where, name: key?.name }
}

export const wants = ({ results }: Pick<RunSelection, 'results'>, { record }: StoredRun): boolean =>
  results.length === 0 || results.includes(record.result)

/** Of more than `limit` the latest, oldest first. */
export async function latestRuns(view: RunsView, selection: RunSelection, limit: number): Promise<StoredRun[]> {
  const found: StoredRun[] = []
  for await (const run of explained(view.list(filterOf(selection), selection.since))) {
    if (!wants(selection, run)) continue
    found.push(run)
    if (found.length > limit) found.shift()
  }
  return found
}

/** Of one object, oldest first. */
export async function runsOf(
  view: RunsView,
  { reconciler, namespace, name }: Pick<RunRecord, 'reconciler' | 'namespace' | 'name'>,
): Promise<StoredRun[]> {
  const found: StoredRun[] = []
  for await (const run of explained(view.list({ reconciler, namespace: namespace ?? null, name }))) found.push(run)
  return found
}

/**
 * With the causes of each: what differs from the run of the object that was recorded before. A process knows its own runs
 * only, so another process may have recorded one meanwhile.
 */
export async function* explained(runs: AsyncIterable<StoredRun>): AsyncGenerator<StoredRun> {
  const before = new Map<string, RunRecord>()
  for await (const run of runs) {
    const { record } = run
    const object = `${record.reconciler} ${record.namespace ?? ''}/${record.name}`
    const last = before.get(object)
    before.set(object, record)
    const causes = last === undefined || last.id === record.since ? record.causes : causesOf(record, last)
    const { causes: _, ...rest } = record
    yield { ...run, record: causes === undefined ? rest : { ...rest, causes } }
  }
}
