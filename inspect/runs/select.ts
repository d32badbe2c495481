import type { RunRecord, RunResult } from '#contracts'
import type { RunsFilter, RunsView, StoredRun } from '#events'
import { causesOf } from '#host/history'
import { keyNameOf } from '../keys/select.ts'

/** The runs that a command selects. */
export interface RunSelection {
  reconciler?: string | undefined
  /** `name` or `namespace/name`; default: all. */
  object?: string | undefined
  namespace?: string | undefined
  /** Empty selects all. */
  results: readonly RunResult[]
  /** Only runs that ended at this time or later. */
  since?: Date | undefined
}

export function filterOf({ reconciler, object, namespace }: RunSelection): RunsFilter {
  const key = object === undefined ? undefined : keyNameOf(object, namespace)
  const where = key?.namespace ?? namespace
  return { reconciler, namespace: where, name: key?.name }
}

export const wants = ({ results }: Pick<RunSelection, 'results'>, { record }: StoredRun): boolean =>
  results.length === 0 || results.includes(record.result)

/** Returns the latest `limit` runs, oldest first. */
export async function latestRuns(view: RunsView, selection: RunSelection, limit: number): Promise<StoredRun[]> {
  const found: StoredRun[] = []
  for await (const run of explained(view.list(filterOf(selection), selection.since))) {
    if (!wants(selection, run)) continue
    found.push(run)
    if (found.length > limit) found.shift()
  }
  return found
}

/** Yields the runs of one object, oldest first. */
export async function runsOf(
  view: RunsView,
  { reconciler, namespace, name }: Pick<RunRecord, 'reconciler' | 'namespace' | 'name'>,
): Promise<StoredRun[]> {
  const found: StoredRun[] = []
  for await (const run of explained(view.list({ reconciler, namespace: namespace ?? null, name }))) found.push(run)
  return found
}

/**
 * Adds the causes to each run: the differences from the previous recorded run of the object. A process knows only its
 * own runs, so another process may have recorded a run in between.
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
