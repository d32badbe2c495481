import type { RunResult } from '#contracts'
import type { RunsView, StoredRun } from '#events'

export interface RunsSelection {
  reconciler?: string | undefined
  /** Undefined: of all; null: of objects without a namespace. */
  namespace?: string | null | undefined
  name?: string | undefined
  result?: RunResult | undefined
}

/** Records that are looked through, from the newest back, until enough match. */
const WINDOWS = [200, 2000]
const MOST = 100

/** The newest first, without the objects that they saw. */
export async function recentRuns(view: RunsView, { result, ...filter }: RunsSelection): Promise<StoredRun[]> {
  const end = await view.end()
  let found: StoredRun[] = []
  for (const window of WINDOWS) {
    found = []
    for await (const run of view.list(filter, Math.max(1, end - window + 1))) {
      if (result !== undefined && run.record.result !== result) continue
      const { objects: _, ...record } = run.record
      found.push({ ...run, record })
      if (found.length > MOST) found.shift()
    }
    if (found.length >= MOST || window >= end) break
  }
  return found.reverse()
}
