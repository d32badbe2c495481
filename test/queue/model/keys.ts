import { canonical } from './canonical.ts'
import { initialState, successors, type World } from './explore.ts'
import { brokenLaw, isDrained } from './laws.ts'
import type { Budget, Config, Move, State, Subject } from './state.ts'
import { isWorker } from './workers.ts'

interface Keys {
  /** Each key has its own token subjects and records; all keys share the remaining budget. */
  states: readonly State[]
  left: Budget
}

/**
 * Several keys that share the workers and the misfortunes. Nothing else connects them: their subjects are disjoint, and
 * a compare-and-set looks at one key's subjects only. Keys are interchangeable.
 */
export const severalKeys = (subject: Subject, config: Config, count: number): World<Keys> => ({
  start: { states: Array.from({ length: count }, () => initialState(config)), left: initialState(config).left },
  successors: ({ states, left }) =>
    states.flatMap((state, index) => {
      const elsewhere = states.toSpliced(index, 1).flatMap(({ processes }) => processes.filter(isWorker))
      const free = { ...config, workers: config.workers - elsewhere.length }
      return successors({ ...state, left }, subject, free).map((move) => moved(states, index, move))
    }),
  canonical: ({ states, left }) =>
    states
      .map((state) => canonical({ ...state, left }, config))
      .sort()
      .join('\n'),
  isDrained: ({ states }) => states.every(isDrained),
  brokenLaw: ({ states }) => states.map((state) => brokenLaw(state, config)).find((law) => law !== undefined),
  runs: ({ states }) => Math.max(...states.map(({ runs }) => runs)),
})

function moved(states: readonly State[], index: number, { label, state }: Move): Move<Keys> {
  return { label: () => `key ${index}: ${label()}`, state: { states: states.with(index, state), left: state.left } }
}
