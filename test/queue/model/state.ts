import type { Ending, FinishStep } from '../../../streams/queue/finish.ts'
import type { RetryStep, WithdrawStep } from '../../../streams/queue/intervene.ts'
import type { Passes, passes } from '../../../streams/queue/leased-key.ts'
import type { HeldKey } from '../../../streams/queue/machine.ts'
import type { Answer, Io, KeyRecord, Lane, Publish } from '../../../streams/queue/record.ts'
import type { RenewStep, TakeStep } from '../../../streams/queue/take.ts'
import type { AbsorbStep } from '../../../streams/queue/tokens.ts'
import type { messages, transitions } from './configs.ts'

/** The machines under test: those of production, or a mutation of one of them. */
export type Machines = {
  [Name in keyof typeof transitions]: (typeof transitions)[Name]
}

/** What is explored: the machines, and what the shell around them does. */
export interface Subject {
  machines: Machines
  messages: typeof messages
  /** What a run does with changes that come while it lasts. */
  passes: typeof passes
  /** A run that lost its lease queues its key again. */
  requeuesFenced: boolean
  /** A run that has noted that it begins does not, if its lease is nearly over by then. */
  beginsInTime: boolean
  /** A change that no run here covers is queued. */
  queuesRefused: boolean
  /** The watch's cursor does not pass a change before it is safe: a restarted process receives the change again. */
  cursorWaits: boolean
  /** Whether a janitor looks for tokens that will never be delivered, and for schedules that will not fire. */
  janitor: boolean
}

/** How often each misfortune or wish may happen in one history. */
export interface Budget {
  /** ENQUEUEs in each lane. */
  high: number
  low: number
  /** Changes that the process of a worker receives directly, in the high lane. */
  announces: number
  /** Tokens that a worker reads from the stream and takes out of their turn. */
  sightings: number
  /** Timers that the process which has set them takes by itself. Where there are some, a change takes such a timer too. */
  wakes: number
  /** Workers that die between two IOs. */
  crashes: number
  /** Publishes and acknowledgements whose answer is lost, or which arrive at any later time. */
  faults: number
  /** Leases that run out while their owner lives. */
  expiries: number
  /** Runs that end otherwise than in done. */
  ends: number
  renews: number
  /** Runs that change something after a run before them was cut short. */
  progresses: number
  /** Workers that look at the clock late, before the server's watchdog. */
  lates: number
  /** Deliveries once more of a token while its key is busy or its acknowledgement on the way. */
  slow: number
  /** Kills of a single server that bring an acknowledged token back. */
  resurrections: number
  /** Schedules that are due when the server has no room for their token. */
  refusals: number
  /**
   * Tokens on their way out that the janitor takes for dead, and schedules about to fire that it takes for given up, and
   * timers that an earlier version has put to sleep.
   */
  mistakes: number
  /** Retries, parkings and purges by hand. */
  interventions: number
}

export interface Config extends Budget {
  workers: number
  replicas: 1 | 3
  /** What a run may end in besides done. */
  endings: readonly Exclude<Ending['kind'], 'done'>[]
  /** What people do by hand. */
  byHand: readonly ('retry' | 'park' | 'purge')[]
  /** Publishes may also arrive later, and acknowledgements. */
  delays: boolean
  /** A token may reach the process that runs its key. */
  tokenLaps: boolean
  /** Checked when given: runs begun in one history. */
  maxRuns?: number
  /** Checked when true: a key has at most one record. */
  oneRecord?: boolean
  /** Checked when true: a running record always has a living owner. Only without deaths, delays and late clocks. */
  neverStranded?: boolean
}

/** A token in the stream. At most one in each lane. */
export interface Slot {
  sequence: number
  attempt: number
  cuts: number
  /** A lease of the key has ended before. Noted where a run may progress, as `cuts` are. */
  cutShort: boolean
  delivered: boolean
  /** An acknowledgement of it is on its way. */
  acking: boolean
  /** Acknowledged, confirmed, and yet seen by publishes for a while (more than one replica). */
  gone: boolean
  /** Brought back by a killed server: never delivered again. */
  dead: boolean
}

interface Stored {
  record: KeyRecord
  /** Its time has come. */
  due: boolean
  /** The server has tried it in vain, and will not again. */
  givenUp: boolean
}

/** A schedule that the server has read and not yet carried out. */
interface Fire {
  generation: string
  lane: Lane
  attempt: number
  cuts: number
  cutShort: boolean
  /** `lost` when it was read. */
  lost: number
}

/** A publish that is still in the network. */
export interface Delayed {
  message: Publish
  /** It ends a run that has read the newest state. */
  completes: boolean
  /** It records that a run has changed something. */
  progresses: boolean
}

/** A change that a process has received directly, or the token that announced it. */
export interface Note {
  lane: Lane
  /** The token's sequence. */
  sequence?: number
}

interface Common {
  /** The owner that it is or would be; unique. */
  nonce: string
  /** The lease that its next write relies on is over by the server's clock. */
  overdue: boolean
  /** Its run has read the newest state. */
  fresh: boolean
  /** The changes of a run; while the key is being taken, the changes that wait for the lease. */
  passes: Passes<Note>
}

type AnyStep = { io: Io }

export type Process = Common &
  (
    | { phase: 'taking'; lane: Lane; token: number | undefined; step: TakeStep }
    | { phase: 'running'; held: HeldKey }
    | { phase: 'absorbing'; held: HeldKey; tokens: readonly Note[]; lane: Lane; token: number; step: AbsorbStep }
    /** `begins`: its function is called when this is stored. */
    | { phase: 'renewing'; held: HeldKey; step: RenewStep; progressed: boolean; begins?: boolean }
    /** `lost`: its lease was lost, and what it wrote since only its token announces. False: it has not begun. */
    | { phase: 'finishing'; held: HeldKey; ending: Ending; step: FinishStep; lost?: boolean }
    | { phase: 'requeueing'; lane: Lane; step: AnyStep | undefined }
    | { phase: 'enqueueing'; lane: Lane; step: AnyStep }
    | { phase: 'retrying'; step: RetryStep }
    | { phase: 'withdrawing'; step: WithdrawStep }
    | { phase: 'rearming'; step: AnyStep }
  )

export interface State {
  tokens: Record<Lane, Slot | undefined>
  /** By sequence. More than one only if a cancellation was forgotten. */
  records: readonly Stored[]
  fires: readonly Fire[]
  network: readonly Delayed[]
  processes: readonly Process[]
  /** A run that has read the newest state has completed. */
  covered: boolean
  left: Budget
  /**
   * Runs in a row that began and whose lease the server ended, since a run of the key has ended or changed something. What
   * is queued already may count more.
   */
  lost: number
  /** The owner whose function was called last, or is about to be: its record says that the run has begun. */
  begun: string | undefined
  /** Runs in a row whose process died under its lease, each of the later ones taken from the token that followed the one before. */
  deaths: number
  /** The token that followed the last one of them. */
  follows: number | undefined
  /** Runs begun; counted only where they are limited. */
  runs: number
  /** Last sequence, and last nonce. */
  counter: number
  /** The last tokens acknowledged; kept only where a killed server may bring them back. */
  acknowledged: Record<Lane, Slot | undefined>
  /** A law that was broken on the way here. */
  broken?: string
}

/** A successor, by what happened. */
export interface Move<Of = State> {
  label: () => string
  state: Of
}

/** What came of an IO. */
export interface Outcome {
  label: string
  state: State
  answer: Answer
}
