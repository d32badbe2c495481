import type { Config, State } from './state.ts'

/** Nothing is under way and nothing is kept, except a key that is parked. */
export const isDrained = (state: State): boolean =>
  !state.tokens.high &&
  !state.tokens.low &&
  state.fires.length === 0 &&
  state.network.length === 0 &&
  state.processes.length === 0 &&
  state.records.every(({ record }) => record.state === 'parked')

/** The law that this state breaks, in words. */
export function brokenLaw(state: State, config: Config): string | undefined {
  if (state.broken) return state.broken
  const owners = state.processes.filter(({ phase, overdue }) => isAtWork(phase) && !overdue)
  if (owners.length > 1) return 'law 2: two owners inside their leases'
  if (isDrained(state) && !state.covered)
    return 'laws 1, 3, 4: nothing is left, but no completed run has read the newest state'
  if (config.maxRuns !== undefined && state.runs > config.maxRuns) return 'bound: more runs than reasons for them'
  if (config.oneRecord && state.records.length > 1) return 'one record: a key has two, so two timers'
  if (config.neverStranded && isStranded(state)) return 'stall: a running record whose owner is not there'
  return undefined
}

const isAtWork = (phase: string): boolean => phase === 'running' || phase === 'renewing' || phase === 'absorbing'

const isStranded = ({ records, processes }: State): boolean =>
  records.some(({ record }) => record.state === 'running' && !processes.some(({ nonce }) => nonce === record.owner))
