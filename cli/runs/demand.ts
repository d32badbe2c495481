import type { RunsView, StoredRun } from '#events'
import { UsageError } from '#host/exit'

/** Returns the run with this number. Throws a UsageError if RUNS does not have it. */
export async function demandRun(view: RunsView, id: number): Promise<StoredRun> {
  const found = await view.get(id)
  if (found === undefined) throw gone(view, id)
  return found
}

export const gone = ({ stream }: RunsView, id: number) =>
  new UsageError(`there is no run ${id} in ${stream}: fairlead runs ls`)
