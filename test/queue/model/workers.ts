import type { Ending, FinishResult } from '../../../streams/queue/finish.ts'
import type { RetryResult, WithdrawResult } from '../../../streams/queue/intervene.ts'
import { type Passes, passes } from '../../../streams/queue/leased-key.ts'
import type { Ended, HeldKey } from '../../../streams/queue/machine.ts'
import {
  type Answer,
  type Failures,
  type Io,
  type KeyRecord,
  LANES,
  type Lane,
  wasCut,
  worst,
} from '../../../streams/queue/record.ts'
import type { RenewResult, TakeResult } from '../../../streams/queue/take.ts'
import type { AbsorbResult, OnceResult } from '../../../streams/queue/tokens.ts'
import { outcomes } from './network.ts'
import { changed, mourning } from './server.ts'
import type { Config, Move, Note, Process, Slot, State, Subject } from './state.ts'
import { AFTER_THE_LEASE, CLOCKS, onCoarseClock, TERMS } from './time.ts'

type Of<Phase extends Process['phase']> = Extract<Process, { phase: Phase }>

/** Everything that enqueuers, workers and the janitor may do next. */
export function clientMoves(state: State, subject: Subject, config: Config): Move[] {
  return [
    ...LANES.flatMap((lane) => [
      ...enqueues(state, lane, subject, config),
      ...deliveries(state, lane, subject, config),
      ...sightings(state, lane, subject, config),
    ]),
    ...interventions(state, subject, config),
    ...announcements(state, subject, config),
    ...wakes(state, subject, config),
    ...(subject.janitor
      ? [...LANES.flatMap((lane) => revival(state, lane, subject)), ...rearming(state, subject)]
      : []),
    ...state.processes.flatMap((process) => processMoves(state, process, subject, config)),
  ]
}

/** An object changes, and its key is enqueued. The obligation to run begins with a definite answer of the server. */
function enqueues(state: State, lane: Lane, subject: Subject, config: Config): Move[] {
  if (state.left[lane] === 0) return []
  const counter = state.counter + 1
  const spent = { ...state, counter, left: { ...state.left, [lane]: state.left[lane] - 1 } }
  const step = queueing(subject, lane)
  return firstIo(spent, { phase: 'enqueueing', lane, step, nonce: `n${counter}`, ...NEWBORN }, subject, config)
}

const queueing = ({ machines, messages }: Subject, lane: Lane) =>
  begun(machines.once.start(messages.tokenOf(lane, 0), CLOCKS.inTime))

const NEWBORN = { overdue: false, fresh: false, passes: passes.none }

function deliveries(state: State, lane: Lane, subject: Subject, config: Config): Move[] {
  const slot = state.tokens[lane]
  if (!slot || slot.gone || slot.dead || state.processes.filter(isWorker).length >= config.workers) return []
  const again = slot.delivered && isBusy(state, slot)
  if (again && state.left.slow === 0) return []
  const left = again ? { ...state.left, slow: state.left.slow - 1 } : state.left
  const next = { ...state, left, tokens: { ...state.tokens, [lane]: { ...slot, delivered: true } } }
  const note: Note = { lane, sequence: slot.sequence }
  return [
    {
      label: () => `n${state.counter + 1}: receives token ${lane} ${slot.sequence}`,
      state: pursue(next, note, subject, config, slot),
    },
    ...(config.tokenLaps ? noted(next, note, subject) : []),
  ]
}

/** A worker reads a token out of its turn, delivered or not; until it takes the key, anything may become of the token. */
function sightings(state: State, lane: Lane, { machines }: Subject, config: Config): Move[] {
  const slot = state.tokens[lane]
  if (!slot || state.left.sightings === 0 || state.processes.filter(isWorker).length >= config.workers) return []
  const counter = state.counter + 1
  const nonce = `n${counter}`
  const { sequence } = slot
  const token = { lane, ...worst(slot), cutShort: slot.cutShort }
  const step = begun(machines.take.start({ token, seen: { sequence }, ...takeTerms(nonce, config) }, CLOCKS.inTime))
  const left = { ...state.left, sightings: state.left.sightings - 1 }
  return [
    {
      label: () => `${nonce}: sees token ${lane} ${sequence}`,
      state: withProcess({ ...state, counter, left }, undefined, {
        ...NEWBORN,
        phase: 'taking',
        lane,
        token: undefined,
        nonce,
        step,
      }),
    },
  ]
}

/** What a note becomes that no run covers: its token is taken, or the change is queued. */
function pursue(state: State, note: Note, subject: Subject, config: Config, failures: Seen = NONE): State {
  const counter = state.counter + 1
  const common = { lane: note.lane, nonce: `n${counter}`, ...NEWBORN }
  const next = { ...state, counter }
  if (note.sequence !== undefined) {
    const { cutShort = false } = failures
    const token = { lane: note.lane, ...worst(failures), cutShort, sequence: note.sequence }
    const step = begun(subject.machines.take.start({ token, ...takeTerms(common.nonce, config) }, CLOCKS.inTime))
    return withProcess(next, undefined, { ...common, phase: 'taking', token: note.sequence, step })
  }
  if (!subject.queuesRefused) return next
  const step = queueing(subject, note.lane)
  return withProcess(next, undefined, { ...common, phase: 'enqueueing', step })
}

type Seen = Failures & { cutShort?: boolean }

const NONE: Seen = { attempt: 0 }

const pursueAll = (state: State, notes: readonly Note[], subject: Subject, config: Config): State =>
  notes.reduce((next, note) => pursue(next, note, subject, config), state)

const takeTerms = (nonce: string, { replicas }: Config) => ({
  nonce,
  freshUntil: CLOCKS.stale - 1,
  terms: TERMS[replicas],
})

/** An object changes, and a process receives the change: a run of the key, a run that is about to begin, or none. */
function announcements(state: State, subject: Subject, config: Config): Move[] {
  if (state.left.announces === 0) return []
  const left = { ...state.left, announces: state.left.announces - 1 }
  const next = changed({ ...state, left })
  const note: Note = { lane: 'high' }
  const waiting = next.processes.filter(({ phase }) => phase === 'taking')
  return [
    ...noted(next, note, subject),
    ...waiting.map((process) => ({
      label: () => `${process.nonce}: is told of a change while taking`,
      state: withProcess(next, process, { ...process, passes: waitingFor(process.passes, note) }),
    })),
    ...(state.processes.filter(isWorker).length < config.workers ? directs(next, note, subject, config) : []),
  ]
}

const waitingFor = (present: Passes<Note>, note: Note): Passes<Note> => ({
  ...present,
  unseen: [...present.unseen, note],
})

const noted = (state: State, note: Note, { passes }: Subject): Move[] =>
  state.processes.flatMap((process) => {
    const after = passes.note(process.passes, note)
    const what = note.sequence === undefined ? 'a change' : `token ${note.lane} ${note.sequence}`
    if (after === undefined || knows(process, note)) return []
    return [
      {
        label: () => `${process.nonce}: is told of ${what} while ${process.phase}`,
        state: withProcess(state, process, { ...process, passes: after }),
      },
    ]
  })

/** Another announcement of the same token has no effect. */
function knows(process: Process, { sequence }: Note): boolean {
  if (sequence === undefined) return false
  const absorbed = process.phase === 'absorbing' ? [...process.tokens, { sequence: process.token }] : []
  return [...absorbed, ...process.passes.unseen].some((note) => note.sequence === sequence)
}

/** A lease without a token; with the record of a timer that the process has set, if there is one. */
function directs(state: State, note: Note, subject: Subject, config: Config): Move[] {
  const told = waitingFor(passes.none, note)
  const label = 'is told of a change, takes the key'
  const known = knownTimer(state)
  const taking = (waiting?: KeyRecord) => direct(state, label, told, { lane: note.lane, waiting }, subject, config)
  return known && config.wakes > 0 ? [taking(), taking(known)] : [taking()]
}

/** A process takes a timer that it has set itself, before the server fires it or in the same moment; or it is too late. */
function wakes(state: State, subject: Subject, config: Config): Move[] {
  const waiting = knownTimer(state)
  if (!waiting || state.left.wakes === 0 || state.processes.filter(isWorker).length >= config.workers) return []
  const spent = { ...state, left: { ...state.left, wakes: state.left.wakes - 1 } }
  const { lane } = waiting
  return [direct(spent, 'takes its own timer', passes.none, { lane, waiting, isDue: true }, subject, config)]
}

function knownTimer({ records }: State): KeyRecord | undefined {
  const last = records.at(-1)?.record
  return last?.state === 'waiting' ? last : undefined
}

function direct(
  state: State,
  label: string,
  told: Passes<Note>,
  { lane, ...how }: { lane: Lane; waiting: KeyRecord | undefined; isDue?: boolean },
  { machines }: Subject,
  config: Config,
): Move {
  const counter = state.counter + 1
  const nonce = `n${counter}`
  const input = { token: { lane, attempt: 0 }, direct: true, ...how, ...takeTerms(nonce, config) }
  const step = begun(machines.take.start(input, CLOCKS.inTime))
  return {
    label: () => `${nonce}: ${label}`,
    state: withProcess({ ...state, counter }, undefined, {
      ...NEWBORN,
      passes: told,
      lane,
      nonce,
      phase: 'taking',
      token: undefined,
      step,
    }),
  }
}

/** Would be delivered again only to a worker that the server takes for dead. */
const isBusy = ({ records, processes }: State, { sequence, acking }: Slot): boolean =>
  acking ||
  records.some(({ record }) => record.state === 'running') ||
  processes.some((process) => 'token' in process && process.token === sequence) ||
  processes.some(({ passes: { unseen } }) => unseen.some((note) => note.sequence === sequence))

const VISITORS = new Set<Process['phase']>(['enqueueing', 'retrying', 'withdrawing', 'rearming'])

export const isWorker = ({ phase }: Process) => !VISITORS.has(phase)

/** A user inspects the queue and acts on its current contents. */
function interventions(state: State, subject: Subject, config: Config): Move[] {
  if (state.left.interventions === 0) return []
  const nonce = `h${state.counter + 1}`
  const left = { ...state.left, interventions: state.left.interventions - 1 }
  const spent = { ...state, counter: state.counter + 1, left }
  const tokens = LANES.flatMap((lane) => {
    const slot = state.tokens[lane]
    return slot ? [{ lane, sequence: slot.sequence, ...worst(slot) }] : []
  })
  const { retry, withdraw } = subject.machines
  return config.byHand.flatMap((act) => {
    const process: Process =
      act === 'retry'
        ? { phase: 'retrying', step: begun(retry.start({}, CLOCKS.inTime)), nonce, ...NEWBORN }
        : {
            phase: 'withdrawing',
            step: begun(withdraw.start({ to: act, nonce, tokens }, CLOCKS.inTime)),
            nonce,
            ...NEWBORN,
          }
    return firstIo(spent, process, subject, config, undefined, `${act} by hand: `)
  })
}

/** The janitor looks for dead keys, and may mistake a key that is being removed for one. */
function revival(state: State, lane: Lane, subject: Subject): Move[] {
  const slot = state.tokens[lane]
  if (slot?.dead) return revive(state, lane, slot, subject)
  if (!slot?.gone || state.left.mistakes === 0) return []
  return revive({ ...state, left: { ...state.left, mistakes: state.left.mistakes - 1 } }, lane, slot, subject)
}

function revive(state: State, lane: Lane, slot: Slot, { machines, messages }: Subject): Move[] {
  const again = messages.tokenAgain({ lane, sequence: slot.sequence, cutShort: slot.cutShort, ...worst(slot) })
  const step = begun(machines.once.start(again, CLOCKS.inTime))
  return outcomes(state, undefined, step.io, undefined).map((outcome) => ({
    label: () => `janitor: replaces token ${lane} ${slot.sequence}: ${outcome.label}`,
    state: outcome.state,
  }))
}

/**
 * The janitor has read a record and will write it again; other moves on the key may come before that. The server has
 * given up its schedule, or the janitor mistakes one that is about to fire, or it is a timer of an earlier version.
 */
function rearming(state: State, { machines, messages }: Subject): Move[] {
  const last = state.records.at(-1)
  if (last === undefined || state.processes.some(({ phase }) => phase === 'rearming')) return []
  const mayMistake = state.left.mistakes > 0 && (last.due || last.record.state === 'waiting')
  if (!last.givenUp && !mayMistake) return []
  const left = last.givenUp ? state.left : { ...state.left, mistakes: state.left.mistakes - 1 }
  const nonce = `j${state.counter + 1}`
  const step = begun(machines.once.start(messages.timerAgain(last.record, nonce), CLOCKS.overdue))
  const next = { ...state, counter: state.counter + 1, left }
  return [
    {
      label: () => `${nonce}: janitor finds ${last.record.generation}`,
      state: withProcess(next, undefined, { phase: 'rearming', step, nonce, ...NEWBORN }),
    },
  ]
}

function processMoves(state: State, process: Process, subject: Subject, config: Config): Move[] {
  return [...crash(state, process, subject, config), ...ownMoves(state, process, subject, config)]
}

/** A dead enqueuer has no obligation. The watch repeats the changes that a dead run had received, from its cursor. */
function crash(state: State, process: Process, subject: Subject, config: Config): Move[] {
  if (state.left.crashes === 0 || process.phase === 'enqueueing') return []
  const left = { ...state.left, crashes: state.left.crashes - 1 }
  const told = [...process.passes.seen, ...process.passes.unseen].filter(({ sequence }) => sequence === undefined)
  const dead = withProcess(mourning({ ...state, left }, process), process)
  return [
    {
      label: () => `${process.nonce}: dies while ${process.phase}`,
      state: subject.cursorWaits ? pursueAll(dead, told, subject, config) : dead,
    },
  ]
}

function ownMoves(state: State, process: Process, subject: Subject, config: Config): Move[] {
  if (process.phase === 'running') return runMoves(state, process, subject, config)
  if (process.phase === 'requeueing') return requeue(state, process, subject, config)
  if (process.phase === 'absorbing' && process.overdue)
    return [...ioMoves(state, process, subject, config), ...seesItsEnd(state, process, subject)]
  return ioMoves(state, process, subject, config)
}

function runMoves(state: State, process: Of<'running'>, subject: Subject, config: Config): Move[] {
  const { machines } = subject
  const { held } = process
  const now = process.overdue ? CLOCKS.overdue : CLOCKS.inTime
  const moves: Move[] = lapMoves(state, process, subject, config)
  const renewed = (progressed: boolean, left: State['left']) => {
    const input = { held, progressed, begins: true, terms: TERMS[config.replicas] }
    const step = onCoarseClock(begun(machines.renew.start(input, now)), now)
    const renewing = { ...process, phase: 'renewing' as const, progressed, step }
    moves.push(...firstIo({ ...state, left }, renewing, subject, config, process, progressed ? 'has progressed; ' : ''))
  }
  if (state.left.renews > 0) renewed(false, { ...state.left, renews: state.left.renews - 1 })
  if (state.left.progresses > 0 && held.record.cuts !== undefined)
    renewed(true, { ...state.left, progresses: state.left.progresses - 1 })
  for (const kind of ['done', ...config.endings] as const) {
    if (kind !== 'done' && state.left.ends === 0) continue
    const left = kind === 'done' ? state.left : { ...state.left, ends: state.left.ends - 1 }
    const ending = ENDINGS[kind]
    const step = onCoarseClock(begun(machines.finish.start({ held, ending }, now)), now)
    const finishing = {
      ...process,
      phase: 'finishing' as const,
      ending,
      running: false,
      passes: subject.passes.close(process.passes),
      step,
    }
    moves.push(...firstIo({ ...state, left }, finishing, subject, config, process, `run ends in ${kind}; `))
  }
  if (process.overdue) moves.push(...seesItsEnd(state, process, subject))
  return moves
}

/** It queues its key, or if only NATS was late, hands it back. */
const seesItsEnd = (state: State, process: Of<'running' | 'absorbing'>, subject: Subject): Move[] => [
  {
    label: () => `${process.nonce}: sees that its lease is over`,
    state: fenced(state, process, process.held.record.lane),
  },
  {
    label: () => `${process.nonce}: sees that its lease is over, hands back`,
    state: handingBack(state, process, process.held, subject, true),
  },
]

/**
 * The moves of a run with the changes that it has received: it reads again, or gives up a change that has waited too
 * long.
 */
function lapMoves(state: State, process: Of<'running'>, subject: Subject, config: Config): Move[] {
  const { unseen } = process.passes
  const [oldest] = unseen
  if (oldest === undefined) return []
  const without = subject.passes.withdraw(process.passes, oldest)
  const tokens = unseen.filter(({ sequence }) => sequence !== undefined)
  const pass = { ...process, passes: subject.passes.begin(process.passes) }
  return [
    {
      label: () => `${process.nonce}: begins another pass`,
      state: absorbNext(state, process, pass, tokens, subject, config),
    },
    ...(without === undefined
      ? []
      : [
          {
            label: () => `${process.nonce}: gives up what it was told`,
            state: pursue(withProcess(state, process, { ...process, passes: without }), oldest, subject, config),
          },
        ]),
  ]
}

/** State is read when no token of the pass is left. */
function absorbNext(
  state: State,
  before: Process,
  run: Of<'running'>,
  tokens: readonly Note[],
  { machines }: Subject,
  { replicas }: Config,
): State {
  const [{ lane, sequence: token } = {}, ...rest] = tokens
  const { phase: _, ...common } = run
  if (lane === undefined || token === undefined) return withProcess(state, before, { ...run, fresh: true })
  const now = run.overdue ? CLOCKS.overdue : CLOCKS.inTime
  const step = machines.absorb.start({ held: run.held, terms: TERMS[replicas] }, now)
  if (!('io' in step)) return fenced(state, run, run.held.record.lane)
  return withProcess(state, before, { ...common, phase: 'absorbing', tokens: rest, lane, token, step })
}

const ENDINGS: Record<Ending['kind'], Ending> = {
  done: { kind: 'done' },
  requeue: { kind: 'requeue', at: AFTER_THE_LEASE },
  error: { kind: 'error', at: AFTER_THE_LEASE, message: 'failed' },
  postponed: { kind: 'postponed', at: AFTER_THE_LEASE, message: 'lost' },
  terminal: { kind: 'terminal', message: 'failed' },
  handback: { kind: 'handback' },
}

/** What it wrote without a lease only its own ENQUEUE announces. */
function fenced(state: State, process: Process, lane: Lane): State {
  const { nonce } = process
  const closed = passes.close(process.passes)
  return withProcess(state, process, { phase: 'requeueing', lane, step: undefined, nonce, ...NEWBORN, passes: closed })
}

function requeue(state: State, process: Of<'requeueing'>, subject: Subject, config: Config): Move[] {
  const { lane, nonce } = process
  if (!subject.requeuesFenced)
    return [{ label: () => `${nonce}: fenced, says nothing`, state: changed(withProcess(state, process)) }]
  const step = process.step ?? queueing(subject, lane)
  return firstIo(state, { ...process, step }, subject, config, process, 'fenced: ')
}

/** Starts a machine and performs its first IO in one move: moves in between have the same effect as a later start. */
function firstIo(
  state: State,
  process: Process,
  subject: Subject,
  config: Config,
  before?: Process,
  prefix = '',
): Move[] {
  const started = withProcess(state, before, process)
  return ioMoves(started, process, subject, config).map(({ label, state: next }) => ({
    label: () => label().replace(': ', `: ${prefix}`),
    state: next,
  }))
}

function ioMoves(state: State, process: Process, subject: Subject, config: Config): Move[] {
  const step = stepOf(process)
  if (!step) return []
  const moves: Move[] = []
  for (const outcome of outcomes(state, process, step.io, config)) {
    const timely = advance(process, outcome.answer, process.overdue ? CLOCKS.overdue : CLOCKS.inTime, subject)
    const add = (result: Advanced, late: string, from: State) =>
      moves.push({
        label: () => `${process.nonce}: ${outcome.label}${late}${resultText(result)}`,
        state: settle(from, process, result, subject, config),
      })
    add(timely, '', outcome.state)
    if (process.overdue || outcome.state.left.lates === 0) continue
    const spent = { ...outcome.state, left: { ...outcome.state.left, lates: outcome.state.left.lates - 1 } }
    for (const clock of ['stale', 'nearlyOver', 'leaseEnd'] as const) {
      const late = advance(process, outcome.answer, CLOCKS[clock], subject)
      if (goesElsewhere(timely, late)) add(late, ` (clock: ${clock})`, spent)
    }
  }
  return moves
}

const stepOf = (process: Process) => (process.phase === 'running' ? undefined : process.step)

type AnyResult =
  | { io: Io }
  | Ended<TakeResult | RenewResult | FinishResult | OnceResult | AbsorbResult | RetryResult | WithdrawResult>

/** The next step of the process's machine, or its result. */
type Advanced = { phase: Process['phase']; out: AnyResult }

function advance(process: Process, answer: Answer, now: number, { machines }: Subject): Advanced {
  const { phase } = process
  const machine = machines[MACHINE_OF[phase]]
  const out = (machine.next as (step: unknown, answer: Answer, now: number) => AnyResult)(stepOf(process), answer, now)
  return { phase, out: onCoarseClock(out, now) }
}

const MACHINE_OF = {
  taking: 'take',
  running: 'renew',
  absorbing: 'absorb',
  renewing: 'renew',
  finishing: 'finish',
  enqueueing: 'once',
  requeueing: 'once',
  retrying: 'retry',
  withdrawing: 'withdraw',
  rearming: 'once',
} as const satisfies Record<Process['phase'], keyof Subject['machines']>

const summary = ({ out }: Advanced): string => {
  if ('io' in out) return 'name' in out ? String(out.name) : out.io.do
  return typeof out.result === 'string' ? out.result : out.result.kind
}

const goesElsewhere = (timely: Advanced, late: Advanced) => summary(timely) !== summary(late)

const resultText = (advanced: Advanced) => ('io' in advanced.out ? '' : ` ⇒ ${summary(advanced)}`)

function settle(state: State, before: Process, { out }: Advanced, subject: Subject, config: Config): State {
  // Its write may have outdated its earlier reads.
  const process = { ...before, fresh: state.processes.some(({ nonce, fresh }) => nonce === before.nonce && fresh) }
  if ('io' in out) {
    const held = 'held' in out && process.phase !== 'taking' ? { held: out.held } : {}
    return withProcess(state, process, { ...process, ...held, step: out } as Process)
  }
  const { result } = out
  const { unsafe } = subject.passes.divide(process.passes, true)
  if (process.phase === 'enqueueing') return changed(withProcess(state, process))
  if (process.phase === 'requeueing') return pursueAll(changed(withProcess(state, process)), unsafe, subject, config)
  if (process.phase === 'absorbing') {
    const { phase: _, step: __, lane: ___, token: ____, tokens, ...common } = process
    return absorbNext(state, process, { ...common, phase: 'running' }, tokens, subject, config)
  }
  if (typeof result === 'string') return pursueAll(withProcess(state, process), unsafe, subject, config)
  switch (result.kind) {
    case 'fenced':
    case 'unclear':
      if (process.phase !== 'finishing') return state
      // A run that did not begin has written nothing.
      return process.lost === false ? withProcess(state, process) : fenced(state, process, process.held.record.lane)
    case 'leased': {
      const next = takenBy(state, process)
      return mustNote(result.held)
        ? beginning(next, process, result.held, subject, config)
        : begin(next, process, result.held, subject)
    }
    case 'held': {
      const stored = state.records.at(-1)
      const isLast = stored?.record.generation === result.held.record.generation
      if (process.phase === 'renewing' && process.begins) {
        const beginning = { ...process, overdue: isLast && stored.due }
        return beginning.overdue && subject.beginsInTime
          ? handingBack(state, beginning, result.held, subject, false)
          : begin(state, beginning, result.held, subject)
      }
      const { nonce, fresh } = process
      const again: Process = {
        phase: 'running',
        held: result.held,
        nonce,
        passes: process.passes,
        fresh,
        overdue: isLast && stored.due,
      }
      return withProcess(state, process, again)
    }
    case 'lost': {
      if (process.phase !== 'renewing') return state
      const { held, begins = false, overdue } = process
      // A run that has begun may have lost its lease for another reason than a late answer, also before it ended.
      return begins || overdue
        ? handingBack(state, process, held, subject, !begins)
        : fenced(state, process, held.record.lane)
    }
    case 'queued': {
      const left = withProcess(state, process)
      return pursueAll('lost' in process && process.lost ? changed(left) : left, unsafe, subject, config)
    }
    case 'idle':
    case 'waiting':
    case 'parked':
    case 'dirty':
    case 'occupied':
    case 'dropped':
      return pursueAll(withProcess(state, process), unsafe, subject, config)
  }
}

/** Only a run that is taken from the token which followed a dead one is known to follow it: others may be under way, or come from the other lane. */
function takenBy(state: State, process: Process): State {
  const token = process.phase === 'taking' ? (process.token ?? process.step.claim.seen?.sequence) : undefined
  return token === state.follows ? state : { ...state, deaths: 0 }
}

const mustNote = ({ record }: HeldKey): boolean =>
  !record.begun && wasCut({ ...record, cutShort: record.reason === 'CutShort' })

/** The run of a key that was cut short before first notes in its record that it begins. */
function beginning(state: State, process: Process, held: HeldKey, { machines }: Subject, { replicas }: Config): State {
  const { nonce, overdue } = process
  const now = overdue ? CLOCKS.overdue : CLOCKS.inTime
  const step = onCoarseClock(begun(machines.renew.start({ held, begins: true, terms: TERMS[replicas] }, now)), now)
  const renewing = { phase: 'renewing' as const, progressed: false, begins: true, held, step }
  return withProcess(state, process, { ...NEWBORN, ...renewing, nonce, overdue })
}

function handingBack(
  state: State,
  process: Process,
  held: HeldKey,
  { machines, passes: { close } }: Subject,
  lost: boolean,
): State {
  const { nonce, overdue } = process
  const now = overdue ? CLOCKS.overdue : CLOCKS.inTime
  const ending = ENDINGS.handback
  const step = onCoarseClock(begun(machines.finish.start({ held, ending }, now)), now)
  const finishing = { phase: 'finishing' as const, held, ending, step, lost, passes: close(process.passes) }
  return withProcess(state, process, { ...NEWBORN, ...finishing, nonce, overdue })
}

/** The run begins: it reads the newest state at once, which is the least that it can know. */
function begin(state: State, process: Process, held: Of<'running'>['held'], subject: Subject): State {
  const { nonce, overdue } = process
  const run: Process = {
    phase: 'running',
    held,
    nonce,
    overdue,
    fresh: true,
    passes: subject.passes.begin(passes.none),
  }
  const next = withProcess({ ...state, runs: state.runs + 1, begun: nonce }, process, run)
  if (mustNote(held)) return { ...next, broken: 'law 9: a run of a key that was cut short begins without a note' }
  return overdue ? { ...next, broken: 'law 2: a run begins outside its lease' } : next
}

function withProcess(state: State, before: Process | undefined, after?: Process): State {
  const index = before ? state.processes.findIndex(({ nonce }) => nonce === before.nonce) : -1
  const others = index < 0 ? state.processes : state.processes.toSpliced(index, 1)
  return { ...state, processes: after ? [...others, after] : others }
}

function begun<Step extends { io: Io }>(started: Step | Ended<unknown>): Step {
  if ('io' in started) return started
  throw new Error('the machine ended before its first IO')
}
