import { type RunsView, viewRuns } from '#events'
import { untilStopped } from '#host/exit'
import { createLogger } from '#host/logging'
import { openJetStream, reportConnection } from '#host/nats'
import { explained, filterOf, latestRuns, type RunSelection, runsOf, wantsRun } from '#inspect'
import type { CommandContext } from '../options.ts'
import { demandRun, gone } from '../runs/demand.ts'
import { jsonRow, type RunsFormat, runLine, runTable } from '../runs/rows.ts'
import { showRun } from '../runs/show.ts'

export interface RunsLsOptions extends RunSelection {
  output: RunsFormat
  limit: number
  watch?: boolean
}

export type RunsTailOptions = RunSelection & { output: RunsFormat }

/** Connects to NATS only. */
async function withRuns({ config }: CommandContext, act: (view: RunsView) => Promise<void>): Promise<void> {
  const settings = await config()
  await using js = await openJetStream(settings, 'runs')
  reportConnection(js, await createLogger(settings))
  await act(viewRuns(js, settings.FAIRLEAD_PREFIX))
}

export const ls = ({ output, limit, watch, ...selection }: RunsLsOptions, context: CommandContext): Promise<void> =>
  withRuns(context, async (view) => {
    const end = watch ? await view.end() : 0
    const runs = await latestRuns(view, selection, limit)
    if (output === 'json' && !watch) context.print(JSON.stringify(runs.map(jsonRow), null, 2))
    else if (output === 'json') for (const run of runs) context.print(runLine(run, output))
    else if (runs.length > 0) context.print(runTable(runs, new Date(), output))
    else if (!watch) context.print('No such run is recorded.')
    if (watch) await follow(view, selection, end, output, context)
  })

export const tail = ({ output, ...selection }: RunsTailOptions, context: CommandContext): Promise<void> =>
  withRuns(context, async (view) => follow(view, selection, await view.end(), output, context))

async function follow(
  view: RunsView,
  selection: RunSelection,
  start: number,
  output: RunsFormat,
  { print }: CommandContext,
): Promise<void> {
  const { signal } = untilStopped()
  for await (const run of explained(view.follow(filterOf(selection), start, signal)))
    if (wantsRun(selection, run)) print(runLine(run, output))
}

export const show = (id: number, context: CommandContext): Promise<void> =>
  withRuns(context, async (view) => {
    const { record } = await demandRun(view, id)
    const all = await runsOf(view, record)
    const index = all.findIndex(({ sequence }) => sequence === id)
    const found = all[index]
    if (found === undefined) throw gone(view, id)
    context.print(showRun(found, all[index - 1]?.record))
  })

/** Prints whole records, one per line: the input of `replay --from`. */
export const get = (ids: readonly number[], context: CommandContext): Promise<void> =>
  withRuns(context, async (view) => {
    for (const id of ids) context.print(JSON.stringify((await demandRun(view, id)).record))
  })
