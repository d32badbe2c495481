import { hostname } from 'node:os'
import type { RunLog } from '#contracts'
import { declareRuns, runSender } from '#events'
import type { Config } from '#host/config'
import type { Streams } from '#host/connections'
import { prefixOf } from '#host/nats'
import { RunHistory } from './history.ts'

export interface OpenHistoryOptions {
  raiseReplicas: boolean
  /** Called when a run of that reconciler was not recorded. */
  dropped: (reconciler: string) => void
  log: Pick<RunLog, 'warn'>
}

/** Opens the history with these settings; undefined if the settings turn it off. */
export function openHistory(
  config: Pick<Config, 'FAIRLEAD_RUNS' | 'FAIRLEAD_RUNS_MAX_BYTES' | 'FAIRLEAD_PREFIX' | 'FAIRLEAD_REPLICAS'>,
  { js, events }: Pick<Streams, 'js' | 'events'>,
  { raiseReplicas, dropped, log }: OpenHistoryOptions,
): RunHistory | undefined {
  const { FAIRLEAD_RUNS: keep, FAIRLEAD_RUNS_MAX_BYTES: maxBytes, FAIRLEAD_PREFIX: prefix } = config
  if (keep === 'never') return undefined
  const options = { ...prefixOf(config), replicas: config.FAIRLEAD_REPLICAS, raiseReplicas, maxBytes }
  return new RunHistory({
    connection: js,
    declare: () => declareRuns(js, options),
    send: runSender(js, prefix, events.cluster),
    keep,
    process: `${hostname()}-${process.pid}`,
    dropped,
    log,
  })
}
