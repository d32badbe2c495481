import { isRunOf } from '../../../streams/queue/machine.ts'
import {
  afterLease,
  type Failures,
  type KeyRecord,
  LANES,
  type Lane,
  type Publish,
} from '../../../streams/queue/record.ts'
import type { Config, Delayed, Move, Process, Slot, State } from './state.ts'

/** Stands for no expectation at all; only mutations publish so. */
export const UNGUARDED = -1

export const lastRecord = ({ records }: State): KeyRecord | undefined => records.at(-1)?.record

const standing = (state: State, { expected, ...message }: Publish): number => {
  if (expected.of === 'record') return lastRecord(state)?.sequence ?? 0
  return message.role === 'token' ? (state.tokens[message.lane]?.sequence ?? 0) : 0
}

/** One atomic publish; undefined is a conflict. */
export function store(before: State, message: Publish, progresses: boolean): State | undefined {
  const state = judged(before, message, progresses)
  const { sequence: expected } = message.expected
  if (expected !== UNGUARDED && expected !== standing(state, message)) return undefined
  const sequence = state.counter + 1
  const records = message.cancels === undefined ? state.records : without(state.records, message.cancels)
  const next = { ...state, counter: sequence, records }
  if (message.role === 'token')
    return withToken(next, message.lane, {
      sequence,
      attempt: message.attempt,
      cuts: cutsIn(message),
      cutShort: message.cutShort === true,
      ...ALIVE,
    })
  if (message.role === 'done') return next
  const { record } = message
  const others = without(records, record.generation)
  return { ...next, records: [...others, { record: { ...record, sequence }, due: false, givenUp: false }] }
}

const cutsIn = ({ cuts = 0 }: Partial<Failures>): number => cuts

const countIn = (message: Publish): number =>
  message.role === 'record' ? cutsIn(message.record) : message.role === 'token' ? cutsIn(message) : 0

/** Compares the cut runs that a message counts with those that there were. */
function judged(state: State, message: Publish, progresses: boolean): State {
  const lost = progresses ? queued(state) : state.lost
  const count = countIn(message)
  if (count > lost) return { ...state, broken: 'law 8: a key counts more cut runs than there were since its progress' }
  const goesOn = message.role === 'record' && message.record.state === 'running'
  const last = lastRecord(state)
  const isEnd = !goesOn && last?.state === 'running' && message.cancels === last.generation
  const deaths = progresses || isEnd ? 0 : state.deaths
  const notes = goesOn && message.record.begun && last && isRunOf(last, message.record.owner)
  const begun = notes ? message.record.owner : state.begun
  return { ...state, begun, deaths, lost: isEnd ? Math.max(count, queued(state)) : lost }
}

/** What tokens count, processes that are about to take one, and publishes in the network. */
const queued = ({ tokens, fires, network, processes }: State): number =>
  Math.max(
    0,
    ...LANES.map((lane) => tokens[lane]?.cuts ?? 0),
    ...fires.map(({ cuts }) => cuts),
    ...network.map(({ message }) => countIn(message)),
    ...processes.map((process) => (process.phase === 'taking' ? cutsIn(process.step.claim) : 0)),
  )

const ALIVE = { delivered: false, acking: false, gone: false, dead: false }

const without = (records: State['records'], generation: string) =>
  records.some(({ record }) => record.generation === generation)
    ? records.filter(({ record }) => record.generation !== generation)
    : records

const withToken = (state: State, lane: Lane, slot: Slot | undefined): State => ({
  ...state,
  tokens: { ...state.tokens, [lane]: slot },
})

/** Records a change of the observed objects: earlier reads are out of date. */
export function changed(state: State): State {
  return {
    ...state,
    covered: false,
    processes: state.processes.map((process) => (process.fresh ? { ...process, fresh: false } : process)),
    network: state.network.map((delayed) => (delayed.completes ? { ...delayed, completes: false } : delayed)),
  }
}

/** What a stored message means for the laws: a run has completed, and a timer needs a later one. */
export function account(state: State, message: Publish, completes: boolean): State {
  const covered = completes ? { ...state, covered: true } : state
  return message.role === 'record' && message.record.state === 'waiting' ? changed(covered) : covered
}

/** The server applies an acknowledgement. It ignores a token that does not exist or is not pending. */
export function acknowledge(state: State, lane: Lane, sequence: number, { replicas, resurrections }: Config): State {
  const slot = state.tokens[lane]
  if (slot?.sequence !== sequence || slot.dead) return state
  if (replicas > 1) return withToken(state, lane, { ...slot, gone: true, acking: false })
  const kept = resurrections > 0 ? { acknowledged: { ...state.acknowledged, [lane]: slot } } : {}
  return withToken({ ...state, ...kept }, lane, undefined)
}

const laneOf = (state: State, sequence: number): Lane | undefined =>
  LANES.find((lane) => state.tokens[lane]?.sequence === sequence)

/** A token is removed by its sequence. A killed server may bring it back, as an acknowledged one. */
export function removeToken(state: State, sequence: number, resurrections: number): State {
  const lane = laneOf(state, sequence)
  if (lane === undefined) return state
  const kept = resurrections > 0 ? { acknowledged: { ...state.acknowledged, [lane]: state.tokens[lane] } } : {}
  return withToken({ ...state, ...kept }, lane, undefined)
}

/** The request to remove a token is on its way and may arrive at any time, or never. */
export function removeTokenLater(state: State, sequence: number): State {
  const lane = laneOf(state, sequence)
  return lane === undefined ? state : acknowledgeLater(state, lane, sequence)
}

/** An acknowledgement leaves a worker and may arrive at any time, or never. */
export function acknowledgeLater(state: State, lane: Lane, sequence: number): State {
  const slot = state.tokens[lane]
  if (slot?.sequence !== sequence || slot.acking || slot.gone || slot.dead) return state
  return withToken(state, lane, { ...slot, acking: true })
}

/** Everything that the server, the network and time do by themselves. */
export function serverMoves(state: State, config: Config): Move[] {
  return [
    ...arrivals(state),
    ...LANES.flatMap((lane) => tokenMoves(state, lane, config)),
    ...timeMoves(state),
    ...fireMoves(state, config),
  ]
}

function arrivals(state: State): Move[] {
  return state.network.map((delayed, index) => ({
    label: () => `network: the delayed ${nameOf(delayed.message)} arrives`,
    state: arrive({ ...state, network: state.network.toSpliced(index, 1) }, delayed),
  }))
}

function arrive(state: State, { message, completes, progresses }: Delayed): State {
  const stored = store(state, message, progresses)
  return stored ? account(stored, message, completes) : state
}

/** Can never be stored any more: sequences do not come back. */
export const isHopeless = (state: State, { message }: Delayed): boolean =>
  message.expected.sequence > 0 && message.expected.sequence !== standing(state, message)

function tokenMoves(state: State, lane: Lane, config: Config): Move[] {
  const slot = state.tokens[lane]
  const moves: Move[] = []
  if (slot?.acking)
    moves.push({
      label: () => `network: the late acknowledgement of token ${lane} ${slot.sequence} arrives`,
      state: acknowledge(state, lane, slot.sequence, config),
    })
  if (slot?.gone)
    moves.push({
      label: () => `server: token ${lane} ${slot.sequence}, acknowledged, disappears`,
      state: withToken(state, lane, undefined),
    })
  const back = state.acknowledged[lane]
  if (slot === undefined && back && state.left.resurrections > 0) moves.push(resurrection(state, lane, back))
  return moves
}

/** All connections break with the server, so no acknowledgement survives in the network. */
function resurrection(state: State, lane: Lane, back: Slot): Move {
  const tokens = { ...state.tokens, [lane]: { ...back, dead: true, acking: false } }
  for (const other of LANES) if (tokens[other]?.acking) tokens[other] = { ...tokens[other], acking: false }
  const left = { ...state.left, resurrections: state.left.resurrections - 1 }
  return {
    label: () => `server: killed; comes back with the acknowledged token ${lane} ${back.sequence}`,
    state: { ...state, tokens, left, acknowledged: { ...state.acknowledged, [lane]: undefined } },
  }
}

/** A lease whose owner lives runs out only on the budget; timers and orphans do at any time. */
function timeMoves(state: State): Move[] {
  const moves: Move[] = []
  state.records.forEach(({ record, due }, index) => {
    if (due || record.state === 'parked') return
    const isLast = index === state.records.length - 1
    const isOwner = ({ nonce }: Process) => isLast && record.state === 'running' && nonce === record.owner
    const costs = state.processes.some((process) => isOwner(process) && !process.overdue)
    if (costs && state.left.expiries === 0) return
    const next = {
      ...state,
      records: state.records.with(index, { record, due: true, givenUp: false }),
      processes: state.processes.map((process) => (isOwner(process) ? { ...process, overdue: true } : process)),
      left: costs ? { ...state.left, expiries: state.left.expiries - 1 } : state.left,
    }
    moves.push({
      label: () => `time: ${record.state} record ${record.generation} of ${record.owner} is due`,
      state: next,
    })
  })
  return moves
}

/** Reading a schedule and carrying it out are two steps; anything may happen between them. */
function fireMoves(state: State, config: Config): Move[] {
  const [fire] = state.fires
  if (fire) {
    const sequence = state.counter + 1
    const { attempt, cuts, cutShort } = fire
    const token = { sequence, attempt, cuts, cutShort, ...ALIVE }
    const lost = Math.max(state.lost, fire.lost)
    const records = without(state.records, fire.generation)
    const follows = state.deaths > 0 ? sequence : undefined
    const next = { ...state, lost, follows, counter: sequence, fires: [], records }
    return [
      {
        label: () =>
          `server: ${fire.generation} fires: stores token ${fire.lane} ${sequence} and purges ${fire.generation}`,
        state: withToken(next, fire.lane, token),
      },
      ...refusals(state, fire),
    ]
  }
  return state.records
    .filter(({ due, givenUp }) => due && !givenUp)
    .map(({ record }) => ({
      label: () => `server: reads the due schedule ${record.generation}`,
      state: counting({ ...state, fires: [firing(record, state, config)] }, record, config),
    }))
}

/** After two runs in a row whose process died, the token that follows the second one counts at least one. */
function counting(state: State, { owner }: KeyRecord, { progresses }: Config): State {
  const isSecond = progresses > 0 && state.deaths === MOST_DEATHS && state.begun === owner
  return isSecond && state.fires.every(({ cuts }) => cuts === 0)
    ? { ...state, broken: 'law 10: two runs in a row ended their process, and the key counts none' }
    : state
}

/** Counts a run whose process dies, if its lease still stands. */
export function mourning(state: State, { nonce }: Process): State {
  const isRun = state.begun === nonce && state.records.some(({ record }) => isRunOf(record, nonce))
  return isRun ? { ...state, deaths: Math.min(state.deaths + 1, MOST_DEATHS) } : state
}

/** The counts end here, so that there are finitely many states. */
const MOST_CUTS = 2
const MOST_DEATHS = 2

/** The token of a running record may stand for a run that was cut short. It is counted where a run may progress. */
function firing(record: KeyRecord, { lost, begun }: State, { progresses }: Config): State['fires'][number] {
  const { state, generation, owner, lane, attempt, cuts = 0 } = record
  const counts = progresses > 0 && state === 'running'
  const cutShort = progresses > 0 && (counts || record.reason === 'CutShort')
  const known = { ...record, cutShort: record.reason === 'CutShort' }
  const { cuts: counted = cuts } = counts ? afterLease(known, record.begun) : record
  const isOne = counts && begun === owner
  const lostThen = Math.min(isOne ? lost + 1 : lost, MOST_CUTS)
  return { generation, lane, attempt, cutShort, cuts: Math.min(counted, MOST_CUTS), lost: lostThen }
}

function refusals(state: State, { generation }: State['fires'][number]): Move[] {
  if (state.left.refusals === 0) return []
  const records = state.records.map((stored) =>
    stored.record.generation === generation ? { ...stored, givenUp: true } : stored,
  )
  const left = { ...state.left, refusals: state.left.refusals - 1 }
  return [
    {
      label: () => `server: ${generation} fires: no room for its token, which is not tried again`,
      state: { ...state, fires: [], records, left },
    },
  ]
}

export function nameOf(message: Publish): string {
  const guard =
    message.expected.sequence === UNGUARDED ? 'unguarded' : `last ${message.expected.of} = ${message.expected.sequence}`
  const cancels = message.cancels === undefined ? '' : `, cancels ${message.cancels}`
  if (message.role === 'done') return `done (${guard}${cancels})`
  if (message.role === 'token') return `token ${message.lane} (${guard}${cancels})`
  const { state, lane, generation, dirty, otherLaneWaits } = message.record
  const flags = `${dirty ? ' dirty' : ''}${otherLaneWaits ? ' other-lane-waits' : ''}`
  return `record ${generation}: ${state} ${lane}${flags} (${guard}${cancels})`
}
