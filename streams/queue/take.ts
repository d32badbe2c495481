import {
  type Ended,
  end,
  generationOf,
  type HeldKey,
  isRunOf,
  leaseEnd,
  type Machine,
  nearlyOver,
  type Terms,
  UnexpectedAnswerError,
  withoutSequence,
} from './machine.ts'
import {
  type Answer,
  type Causes,
  type Failures,
  type Io,
  type KeyRecord,
  type NewRecord,
  type Token,
  withCauses,
  worst,
} from './record.ts'

export interface TakeInput {
  token: Omit<Token, 'sequence'>
  /** True: there is no token. This process observed the change itself, and queues it if it cannot take the key. */
  direct?: boolean
  /** The token was not delivered but read from the stream, and may be gone by now. It is removed by its sequence. */
  seen?: { sequence: number }
  /**
   * The waiting record as this process has stored it. It is taken over without being read, and may not stand any more.
   */
  waiting?: KeyRecord
  /**
   * True: the due timer of `waiting` is the only reason to run. If that record does not stand, the key is left alone.
   */
  isDue?: boolean
  /** A text that is unique to this attempt. It becomes the owner and part of the generations that the owner writes. */
  nonce: string
  /** The name of the process that takes the key, for users. */
  by?: string
  /**
   * The server's time after which the token is not taken, because the server is about to deliver it to another worker.
   */
  freshUntil: number
  terms: Terms
}

export type TakeResult =
  | { kind: 'leased'; held: HeldKey }
  /** The key is running, and its owner will run it once more. */
  | { kind: 'dirty' }
  /**
   * The key is running, and its owner was not informed: a change must be queued, and a seen token stays where it is.
   */
  | { kind: 'occupied' }
  /** Nothing was acknowledged: the server delivers the token again, or the watchdog queues the key. */
  | { kind: 'dropped'; because: 'delivery too old' | 'lease nearly over' }

/** A delivery that is about to become a lease. */
interface LeaseClaim extends TakeInput, Failures {
  writes: number
  cutShort?: boolean
  causes?: Causes
}

export type TakeStep = { claim: LeaseClaim; io: Io } & (
  | { name: 'take' | 'steal'; record: NewRecord }
  | { name: 'look' | 'dismiss' }
  | { name: 'dirty'; sameLane: boolean }
  | { name: 'acknowledge' | 'barrier' | 'remove'; held: HeldKey }
)

type Next = TakeStep | Ended<TakeResult>

/**
 * Takes a key under a lease, for one of four causes:
 * - A delivered token. The record is stored before the token is acknowledged, and the lease begins only after the token
 * is known to be gone: a later ENQUEUE makes a new token, and the run that starts now covers an earlier one.
 * - A change without a token. The record alone is as durable, because it is a schedule of that token.
 * - A timer that this process has set, shortly before the server makes a token of it.
 * - A token that was read before its turn. The consumer is still responsible for it, so a failure costs at most its
 * place. Its removal names one sequence, so a late removal takes no newer token away.
 */
export const take: Machine<TakeInput, TakeStep, TakeResult> = {
  start(input, now) {
    const claim = { ...input, ...input.token, writes: 0 }
    return input.waiting && now <= input.freshUntil ? steal(claim, input.waiting, now) : takeFresh(claim, now)
  },

  next(step, answer, now) {
    if (answer.kind === 'busy' || answer.kind === 'unknown') return isTooLate(step, now) ? tooLate(step) : step
    switch (step.name) {
      case 'take':
        return answer.kind === 'conflict' ? look(step.claim) : afterStored(step, answer, now)
      case 'steal':
        if (answer.kind !== 'conflict') return afterStored(step, answer, now)
        return step.claim.isDue ? look(step.claim) : takeFresh(step.claim, now)
      case 'look':
        if (answer.kind !== 'record') throw new UnexpectedAnswerError(step, answer)
        return onRecord(step.claim, answer.record, now)
      case 'dirty':
        if (answer.kind === 'conflict') return takeFresh(step.claim, now)
        return step.sameLane ? dismiss(step.claim) : end({ kind: 'dirty' })
      case 'dismiss':
        return end({ kind: 'dirty' })
      case 'acknowledge':
        if (isTooLate(step, now)) return tooLate(step)
        return step.claim.terms.replicated ? barrier(step.claim, step.held) : end({ kind: 'leased', held: step.held })
      case 'barrier':
        if (answer.kind !== 'token') throw new UnexpectedAnswerError(step, answer)
        if (isTooLate(step, now)) return tooLate(step)
        return answer.present ? acknowledge(step.claim, step.held) : end({ kind: 'leased', held: step.held })
      case 'remove':
        return isTooLate(step, now) ? tooLate(step) : end({ kind: 'leased', held: step.held })
    }
  },
}

function takeFresh(claim: LeaseClaim, now: number): Next {
  if (now > claim.freshUntil) return end({ kind: 'dropped', because: 'delivery too old' })
  return writeRunning('take', claim, undefined, now)
}

function onRecord(claim: LeaseClaim, record: KeyRecord | undefined, now: number): Next {
  if (record && isRunOf(record, claim.nonce)) return taken(claim, { record, writes: claim.writes }, now)
  // The timer has fired, or another process has taken it: a token or a run has followed from it.
  if (claim.isDue) return end({ kind: 'occupied' })
  if (record === undefined) return takeFresh(claim, now)
  if (record.state === 'running') return claim.direct || claim.seen ? end({ kind: 'occupied' }) : dirty(claim, record)
  return steal(claim, record, now)
}

const look = (claim: LeaseClaim): TakeStep => ({ name: 'look', claim, io: { do: 'readRecord' } })

function steal(claim: LeaseClaim, waiting: KeyRecord, now: number): TakeStep {
  const cutShort = claim.cutShort === true || waiting.reason === 'CutShort'
  return writeRunning('steal', { ...claim, ...worst(claim, waiting), cutShort }, waiting, now)
}

/** TAKE of an idle key, or STEAL: the same write removes the waiting record. */
function writeRunning(
  name: 'take' | 'steal',
  claim: LeaseClaim,
  waiting: KeyRecord | undefined,
  now: number,
): TakeStep {
  const record: NewRecord = {
    state: 'running',
    generation: generationOf('running', claim.nonce, claim.writes),
    owner: claim.nonce,
    lane: claim.token.lane,
    ...worst(claim),
    at: now + claim.terms.leaseMs,
    since: now,
    dirty: false,
    otherLaneWaits: false,
    ...(claim.by !== undefined && { by: claim.by }),
    ...(claim.cutShort && { reason: 'CutShort' }),
    ...withCauses(claim.causes),
  }
  const message = {
    role: 'record' as const,
    record,
    expected: { of: 'record' as const, sequence: waiting?.sequence ?? 0 },
    ...(waiting && { cancels: waiting.generation }),
  }
  return { name, record, claim: { ...claim, writes: claim.writes + 1 }, io: { do: 'publish', message } }
}

/**
 * Notes in the running record that the key must run again. A token of the record's own lane is then acknowledged,
 * because each write that ends the record replaces it. A token of the other lane stays until the owner's release
 * replaces it, or until it is delivered again.
 */
function dirty(claim: LeaseClaim, running: KeyRecord): Next {
  const sameLane = running.lane === claim.token.lane
  if (!sameLane && running.otherLaneWaits) return end({ kind: 'dirty' })
  const { causes, ...before } = withoutSequence(running)
  const wasDirty = running.dirty || running.otherLaneWaits
  const record: NewRecord = {
    ...before,
    generation: generationOf('running', claim.nonce, claim.writes),
    ...worst(running, claim),
    ...(sameLane ? { dirty: true } : { otherLaneWaits: true }),
    ...(claim.cutShort && { reason: 'CutShort' as const }),
    // The owner knows its own causes. From now on the record has those of the run that follows.
    ...withCauses(wasDirty ? causes : undefined, claim.causes),
  }
  const expected = { of: 'record' as const, sequence: running.sequence }
  const message = { role: 'record' as const, record, expected, cancels: running.generation }
  return { name: 'dirty', sameLane, claim: { ...claim, writes: claim.writes + 1 }, io: { do: 'publish', message } }
}

const dismiss = (claim: LeaseClaim): TakeStep => ({
  name: 'dismiss',
  claim,
  io: { do: 'acknowledge', confirmed: false },
})

function afterStored(step: TakeStep & { name: 'take' | 'steal' }, answer: Answer, now: number): Next {
  if (answer.kind !== 'stored') throw new UnexpectedAnswerError(step, answer)
  const { claim } = step
  const held = { record: { ...step.record, sequence: answer.sequence }, writes: claim.writes }
  return taken(claim, held, now)
}

function taken(claim: LeaseClaim, held: HeldKey, now: number): Next {
  if (claim.seen) return remove(claim, held, claim.seen)
  if (!claim.direct) return acknowledge(claim, held)
  return nearlyOver(held.record, claim.terms, now)
    ? end({ kind: 'dropped', because: 'lease nearly over' })
    : end({ kind: 'leased', held })
}

const acknowledge = (claim: LeaseClaim, held: HeldKey): TakeStep => ({
  name: 'acknowledge',
  claim,
  held,
  io: { do: 'acknowledge', confirmed: true },
})

const barrier = (claim: LeaseClaim, held: HeldKey): TakeStep => ({
  name: 'barrier',
  claim,
  held,
  io: { do: 'readToken' },
})

const remove = (claim: LeaseClaim, held: HeldKey, { sequence }: { sequence: number }): TakeStep => ({
  name: 'remove',
  claim,
  held,
  io: { do: 'removeToken', sequence },
})

/** Without a record, the age of the delivery counts; with a record, its lease. */
function isTooLate(step: TakeStep, now: number): boolean {
  if ('held' in step) return nearlyOver(step.held.record, step.claim.terms, now)
  if ('record' in step) return nearlyOver(step.record, step.claim.terms, now)
  return now > step.claim.freshUntil
}

const tooLate = (step: TakeStep): Ended<TakeResult> =>
  end({ kind: 'dropped', because: 'held' in step || 'record' in step ? 'lease nearly over' : 'delivery too old' })

export interface RenewInput {
  held: HeldKey
  terms: Terms
  /** True: the run has changed something, so the runs before it that were cut short no longer count. */
  progressed?: boolean
  /** True: the function is about to be called, or was. */
  begins?: boolean
}

/** lost: another process may own the key by now. Write nothing more, except what expects the record as this process knows it. */
export type RenewResult = { kind: 'held'; held: HeldKey } | { kind: 'lost' }

export interface RenewStep extends RenewInput {
  name: 'renew' | 'look'
  sent: NewRecord
  io: Io
}

/** Moves the end of the lease forward, and keeps the notes that other processes have written into the record. */
export const renew: Machine<RenewInput, RenewStep, RenewResult> = {
  start: writeLater,

  next(step, answer, now) {
    if (answer.kind === 'busy' || answer.kind === 'unknown')
      return now > leaseEnd(step.held.record, step.terms) ? end({ kind: 'lost' }) : step
    if (step.name === 'renew') {
      if (answer.kind === 'stored') return renewed(step, { ...step.sent, sequence: answer.sequence })
      return { ...step, name: 'look', io: { do: 'readRecord' } }
    }
    if (answer.kind !== 'record') throw new UnexpectedAnswerError(step, answer)
    const { record } = answer
    if (!record || !isRunOf(record, step.held.record.owner)) return end({ kind: 'lost' })
    if (record.generation === step.sent.generation) return renewed(step, record)
    return writeLater({ ...step, held: { ...step.held, record } }, now)
  },
}

function writeLater({ held, terms, progressed = false, begins = false }: RenewInput, now: number): RenewStep {
  const sent: NewRecord = {
    ...withoutSequence(held.record),
    generation: generationOf('running', held.record.owner, held.writes),
    at: now + terms.leaseMs,
  }
  if (progressed) delete sent.cuts
  if (begins) sent.begun = true
  const expected = { of: 'record' as const, sequence: held.record.sequence }
  const message = { role: 'record' as const, record: sent, expected, cancels: held.record.generation }
  return {
    name: 'renew',
    sent,
    terms,
    progressed,
    begins,
    held: { ...held, writes: held.writes + 1 },
    io: { do: 'publish', message },
  }
}

const renewed = (step: RenewStep, record: KeyRecord) =>
  end<RenewResult>({ kind: 'held', held: { ...step.held, record } })
