import { canonical } from './canonical.ts'
import { brokenLaw, isDrained } from './laws.ts'
import { isHopeless, serverMoves } from './server.ts'
import type { Budget, Config, Move, State, Subject } from './state.ts'
import { Numbers, Visited } from './visited.ts'
import { clientMoves } from './workers.ts'

export interface Exploration {
  states: number
  edges: number
  depth: number
  /** The largest number of runs in one history; only where they are counted. */
  runs: number
  /** What is broken, and how one gets there. */
  violation?: { law: string; trace: string[] }
  /** The bound on states was reached: nothing found, nothing proved. */
  exhausted: boolean
}

/** What is explored: states, what may come next, and what must hold. */
export interface World<State> {
  start: State
  successors(state: State): Move<State>[]
  /** The same text for states of which one may stand for the other. */
  canonical(state: State): string
  isDrained(state: State): boolean
  brokenLaw(state: State): string | undefined
  runs(state: State): number
}

const CANNOT_DRAIN = 'law 7: from here the key never becomes idle again'

/** All histories of one key. */
export const explore = (subject: Subject, config: Config, maxStates?: number): Exploration =>
  exploreWorld(oneKey(subject, config), maxStates)

const oneKey = (subject: Subject, config: Config): World<State> => ({
  start: initialState(config),
  successors: (state) => successors(state, subject, config),
  canonical: (state) => canonical(state, config),
  isDrained,
  brokenLaw: (state) => brokenLaw(state, config),
  runs: ({ runs }) => runs,
})

/** Breadth first, so that the trace of a violation is a shortest one. */
export function exploreWorld<State>(world: World<State>, maxStates = Number.POSITIVE_INFINITY): Exploration {
  const visited = new Visited()
  const parents = new Numbers()
  const moves = new Numbers()
  const edges = { from: new Numbers(), to: new Numbers() }
  const drained: number[] = []
  let frontier: { id: number; state: State }[] = []
  let runs = 0

  /** The state's number, and whether it was new. */
  const visit = (state: State, parent: number, move: number) => {
    const before = visited.size
    const id = visited.add(world.canonical(state))
    if (id < before) return id
    parents.push(parent)
    moves.push(move)
    if (world.isDrained(state)) drained.push(id)
    runs = Math.max(runs, world.runs(state))
    frontier.push({ id, state })
    return id
  }
  const report = (depth: number, rest: Partial<Exploration> = {}): Exploration => ({
    states: visited.size,
    edges: edges.to.length,
    depth,
    runs,
    exhausted: false,
    ...rest,
  })
  const violation = (law: string, id: number) => ({
    violation: { law, trace: replay(pathTo(id, parents, moves), world) },
  })

  visit(world.start, -1, -1)
  for (let depth = 0; ; depth++) {
    const level = frontier
    frontier = []
    if (level.length === 0) {
      const stuck = neverDrains(visited.size, edges, drained)
      return report(depth, stuck === undefined ? {} : violation(CANNOT_DRAIN, stuck))
    }
    for (const { id, state } of level) {
      if (visited.size > maxStates) return report(depth, { exhausted: true })
      for (const [index, next] of world.successors(state).entries()) {
        const to = visit(next.state, id, index)
        edges.from.push(id)
        edges.to.push(to)
        const law = world.brokenLaw(next.state)
        if (law) return report(depth + 1, violation(law, to))
      }
    }
  }
}

export function initialState(config: Config): State {
  return {
    tokens: { high: undefined, low: undefined },
    acknowledged: { high: undefined, low: undefined },
    records: [],
    fires: [],
    network: [],
    processes: [],
    covered: true,
    lost: 0,
    begun: undefined,
    deaths: 0,
    follows: undefined,
    left: budgetOf(config),
    runs: 0,
    counter: 0,
  }
}

function budgetOf(config: Config): Budget {
  const { high, low, announces, sightings, wakes, crashes, faults, expiries, ends, renews, progresses, interventions } =
    config
  const { lates, slow, resurrections, refusals, mistakes } = config
  const disorder = { crashes, faults, expiries, lates, slow, resurrections, refusals, mistakes }
  return { high, low, announces, sightings, wakes, ends, renews, progresses, interventions, ...disorder }
}

export function successors(state: State, subject: Subject, config: Config): Move[] {
  const moves = [...serverMoves(state, config), ...clientMoves(state, subject, config)]
  for (const move of moves) {
    const { network } = move.state
    if (network.some((delayed) => isHopeless(move.state, delayed)))
      move.state = { ...move.state, network: network.filter((delayed) => !isHopeless(move.state, delayed)) }
  }
  return moves
}

function pathTo(id: number, parents: Numbers, moves: Numbers): number[] {
  const path: number[] = []
  for (let at = id; parents.at(at) >= 0; at = parents.at(at)) path.push(moves.at(at))
  return path.reverse()
}

function replay<State>(path: number[], world: World<State>): string[] {
  let state = world.start
  return path.map((index) => {
    const move = world.successors(state)[index]!
    state = move.state
    return move.label()
  })
}

/** A state from which no drained one can be reached, by going back from all drained ones. */
function neverDrains(
  states: number,
  { from, to }: { from: Numbers; to: Numbers },
  drained: readonly number[],
): number | undefined {
  const starts = new Int32Array(states + 1)
  for (let edge = 0; edge < to.length; edge++) starts[to.at(edge) + 1]!++
  for (let id = 0; id < states; id++) starts[id + 1]! += starts[id]!
  const ends = starts.slice()
  const sources = new Int32Array(to.length)
  for (let edge = 0; edge < to.length; edge++) sources[ends[to.at(edge)]!++] = from.at(edge)

  const drains = new Uint8Array(states)
  const open = [...drained]
  for (const id of open) drains[id] = 1
  for (let id = open.pop(); id !== undefined; id = open.pop()) {
    for (let place = starts[id]!; place < starts[id + 1]!; place++) {
      const source = sources[place]!
      if (drains[source]) continue
      drains[source] = 1
      open.push(source)
    }
  }
  const stuck = drains.indexOf(0)
  return stuck < 0 ? undefined : stuck
}
