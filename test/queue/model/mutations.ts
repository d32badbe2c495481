import { passes } from '../../../streams/queue/leased-key.ts'
import type { Ended, HeldKey, Machine } from '../../../streams/queue/machine.ts'
import { type Answer, type Io, type KeyRecord, otherLane, type Publish } from '../../../streams/queue/record.ts'
import { CALM, messages, PRODUCTION, transitions } from './configs.ts'
import { UNGUARDED } from './server.ts'
import type { Config, Machines, Subject } from './state.ts'
import { CLOCKS } from './time.ts'

/** A guard of the protocol, and what happens without it. */
export interface Mutation {
  guard: string
  /** How the sentence of the broken law begins. */
  breaks: 'laws 1, 3, 4' | 'law 2' | 'law 7' | 'law 8' | 'law 9' | 'law 10' | 'one record' | 'bound' | 'stall'
  subject: Subject
  config: Config
}

const withMachines = (machines: Partial<Machines>): Subject => ({
  ...PRODUCTION,
  machines: { ...transitions, ...machines },
})

const withPasses = (functions: Partial<Subject['passes']>): Subject => ({
  ...PRODUCTION,
  passes: { ...passes, ...functions },
})

const { take, renew, finish, retry, withdraw } = transitions

type Out<State, Result> = State | Ended<Result>

/** Changes what a machine asks for; its own decisions stay. */
function asking<Input, State extends { io: Io }, Result>(
  machine: Machine<Input, State, Result>,
  change: (io: Io, step: State) => Io,
): Machine<Input, State, Result> {
  const changed = (out: Out<State, Result>): Out<State, Result> =>
    'io' in out ? { ...out, io: change(out.io, out) } : out
  return {
    start: (input, now) => changed(machine.start(input, now)),
    next: (step, answer, now) => changed(machine.next(step, answer, now)),
  }
}

const publishing =
  <Step>(change: (message: Publish, step: Step) => Publish) =>
  (io: Io, step: Step): Io =>
    io.do === 'publish' ? { ...io, message: change(io.message, step) } : io

/** Changes the input of a machine. */
function hearing<Input, State extends { io: Io }, Result>(
  machine: Machine<Input, State, Result>,
  change: (answer: Answer, step: State) => Answer,
): Machine<Input, State, Result> {
  return { ...machine, next: (step, answer, now) => machine.next(step, change(answer, step), now) }
}

const unguarded = (message: Publish): Publish => ({
  ...message,
  expected: { ...message.expected, sequence: UNGUARDED },
})

function withoutCancel<Message extends Publish>(message: Message): Message {
  const copy = { ...message }
  if (copy.role !== 'done') delete copy.cancels
  return copy.role === 'done' ? { ...copy, cancels: 'nothing' } : copy
}

const rearming = (change: (message: Publish) => Publish): Subject => ({
  ...PRODUCTION,
  messages: { ...messages, timerAgain: (...timer) => change(messages.timerAgain(...timer)) },
})

type StepName = 'take' | 'steal' | 'dirty'

const inTake = (name: StepName, change: (message: Publish) => Publish) =>
  withMachines({
    take: asking(
      take,
      publishing((message, step) => (step.name === name ? change(message) : message)),
    ),
  })

const withoutMarks = (held: HeldKey): HeldKey => ({
  ...held,
  record: { ...held.record, dirty: false, otherLaneWaits: false },
})

/** Asks for one more thing before the machine starts. */
function after<Input extends object, State extends { io: Io }, Result>(
  io: (input: Input) => Io,
  machine: Machine<Input, State, Result>,
): Machine<Input, State, Result> {
  const isFirst = (step: State | { first: Input }): step is { first: Input } => 'first' in step
  return {
    start: (input) => ({ name: 'first', first: input, io: io(input) }) as unknown as State,
    next: (step, answer, now) => {
      if (!isFirst(step)) return machine.next(step, answer, now)
      return answer.kind === 'unknown' ? step : machine.start(step.first, now)
    },
  }
}

/** The token if absent, then the record: two publishes for one. */
const releaseInTwo: Machines['finish'] = {
  start: (input, now) => {
    const { record } = input.held
    if (!record.dirty) return finish.start(input, now)
    const expected = { of: 'token', sequence: 0 } as const
    const message = { role: 'token', lane: record.lane, attempt: 0, expected } as const
    return { ...input, name: 'finish', message, ambiguous: false, io: { do: 'publish', message } }
  },
  next: (step, answer, now) => {
    if (step.message.role !== 'token' || answer.kind === 'unknown' || answer.kind === 'busy') {
      const out = finish.next(step, answer, now)
      return 'io' in out && out.io.do === 'publish'
        ? releaseInTwo.start({ held: out.held, ending: out.ending }, now)
        : out
    }
    return finish.start({ held: withoutMarks(step.held), ending: step.ending }, now)
  },
}

const ignoringDirty: Machines['finish'] = {
  start: (input, now) => finish.start({ ...input, held: withoutMarks(input.held) }, now),
  next: (step, answer, now) => {
    const record = answer.kind === 'record' ? answer.record : undefined
    if (!record) return finish.next(step, answer, now)
    return finish.next(step, { kind: 'record', record: { ...record, dirty: false, otherLaneWaits: false } }, now)
  },
}

const foreign = (answer: Answer): Answer =>
  answer.kind === 'record' && answer.record
    ? { kind: 'record', record: { ...answer.record, owner: `not ${answer.record.owner}` } }
    : answer

const idling = (answer: Answer): Answer =>
  answer.kind === 'record' && answer.record
    ? { kind: 'record', record: { ...answer.record, state: 'waiting' } }
    : answer

const clean = (answer: Answer): Answer =>
  answer.kind === 'record' && answer.record ? { kind: 'record', record: { ...answer.record, dirty: false } } : answer

const inRecord = (change: (record: Omit<KeyRecord, 'sequence'>) => Partial<KeyRecord>) => (message: Publish) =>
  message.role === 'record' ? { ...message, record: { ...message.record, ...change(message.record) } } : message

const oneGeneration = (message: Publish): Publish => {
  const named = inRecord(() => ({ generation: 'only' }))(message)
  return named.cancels === undefined ? named : { ...named, cancels: 'only' }
}

const OWN_TIMER: Config = { ...CALM, ends: 1, endings: ['requeue'], wakes: 1 }
const REARMED: Config = { ...CALM, high: 2, ends: 1, endings: ['requeue'], mistakes: 1 }
const BY_HAND: Config = { ...CALM, interventions: 1 }
const replicated: Config = { ...CALM, replicas: 3 }

export const MUTATIONS: Record<string, Mutation> = {
  'cut runs count on after progress': {
    guard: 'a run that has changed something forgets the runs before it that were cut short',
    breaks: 'law 8',
    subject: withMachines({
      renew: { ...renew, start: (input, now) => renew.start({ ...input, progressed: false }, now) },
    }),
    config: { ...CALM, crashes: 2, progresses: 1, slow: 0 },
  },
  'a run of a key that was cut short begins without a note': {
    guard: 'the function is called after the record says that the run begins',
    breaks: 'law 9',
    subject: withMachines({
      renew: { ...renew, start: (input, now) => renew.start({ ...input, begins: false }, now) },
    }),
    config: { ...CALM, crashes: 1, progresses: 1, slow: 0 },
  },
  'a key that is taken counts as one whose run has begun': {
    guard: 'a lease under which no run began counts none',
    breaks: 'law 8',
    subject: inTake('take', (message) => inRecord(() => ({ begun: true }))(message)),
    config: { ...CALM, crashes: 2, progresses: 1, slow: 0 },
  },
  'a run begins, although its note was stored too late': {
    guard: 'a run does not begin when its lease is nearly over',
    breaks: 'law 2',
    subject: { ...PRODUCTION, beginsInTime: false },
    config: { ...CALM, crashes: 1, faults: 1, expiries: 1, progresses: 1, slow: 0 },
  },
  'TAKE forgets that a lease of the key has ended': {
    guard: 'a function that ends its process makes a suspect after two lost processes',
    breaks: 'law 10',
    subject: withMachines({
      take: {
        ...take,
        start: ({ token, ...of }, now) => take.start({ ...of, token: { ...token, cutShort: false } }, now),
      },
    }),
    config: { ...CALM, high: 2, crashes: 2, progresses: 1, slow: 0 },
  },
  'a run that ends hands on a count that grows': {
    guard: 'only a run that was cut short is counted as one',
    breaks: 'law 8',
    subject: withMachines({
      finish: asking(
        finish,
        publishing((message) => (message.role === 'token' ? { ...message, cuts: (message.cuts ?? 0) + 1 } : message)),
      ),
    }),
    config: { ...CALM, ends: 1, endings: ['handback'] },
  },
  'TAKE without CAS': {
    guard: 'a running record is only created where none stands',
    breaks: 'law 2',
    subject: inTake('take', unguarded),
    config: { ...CALM, high: 2 },
  },
  'STEAL without CAS': {
    guard: 'a waiting record is only taken as it was read',
    breaks: 'law 2',
    subject: inTake('steal', unguarded),
    config: { ...CALM, high: 2, ends: 1, endings: ['requeue'] },
  },
  'STEAL without cancelling': {
    guard: 'a stolen timer does not fire',
    breaks: 'one record',
    subject: inTake('steal', withoutCancel),
    config: { ...CALM, high: 2, ends: 1, endings: ['requeue'], oneRecord: true },
  },
  'DIRTY without CAS': {
    guard: 'only the run that was read becomes dirty',
    breaks: 'stall',
    subject: inTake('dirty', unguarded),
    config: { ...CALM, high: 2, neverStranded: true },
  },
  'acknowledging before the record': {
    guard: 'the token goes only when the record stands',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({ take: after(() => ({ do: 'acknowledge', confirmed: true }), take) }),
    config: { ...CALM, crashes: 1 },
  },
  'running before the acknowledgement is confirmed': {
    guard: 'state is read only when no ENQUEUE can coalesce into the old token',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      take: asking(take, (io, { name }) => (name === 'acknowledge' ? { do: 'acknowledge', confirmed: false } : io)),
    }),
    config: { ...CALM, high: 2 },
  },
  'skipping the barrier': {
    guard: 'with replicas a confirmed acknowledgement is not enough: the token must be gone',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      take: {
        ...take,
        start: (input, now) => take.start({ ...input, terms: { ...input.terms, replicated: false } }, now),
      },
    }),
    config: { ...replicated, high: 2 },
  },
  'a lease given out when it is over': {
    guard: 'a lease that is nearly over is left to the watchdog',
    breaks: 'law 2',
    subject: withMachines({ take: { ...take, next: (step, answer) => take.next(step, answer, CLOCKS.inTime) } }),
    config: { ...CALM, expiries: 1 },
  },
  'a conflict in TAKE is always foreign': {
    guard: 'after a lost answer the own nonce in the record means that the publish took effect',
    breaks: 'stall',
    subject: withMachines({ take: hearing(take, foreign) }),
    config: { ...CALM, faults: 1, delays: false, neverStranded: true },
  },
  'a conflict in RENEW is always foreign': {
    guard: "DIRTY moves the record's sequence, and the owner adopts it",
    breaks: 'stall',
    subject: withMachines({ renew: hearing(renew, foreign) }),
    config: { ...CALM, renews: 1, neverStranded: true },
  },
  'a conflict in FINISH is always foreign': {
    guard: 'DIRTY during the release is read, and the release decided again',
    breaks: 'stall',
    subject: withMachines({ finish: hearing(finish, foreign) }),
    config: { ...CALM, high: 2, neverStranded: true },
  },
  'DIRTY acknowledges first': {
    guard: 'the token of DIRTY goes only when the record stands',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      take: {
        ...take,
        next: (step, answer, now) => {
          if (step.name === 'dismiss') return { result: { kind: 'dirty' } }
          if (step.name !== 'dirty' || step.io.do !== 'acknowledge') {
            const out = take.next(step, answer, now)
            const isDirty = 'io' in out && out.name === 'dirty' && out.sameLane && out.io.do === 'publish'
            return isDirty ? ({ ...out, later: out.io, io: { do: 'acknowledge', confirmed: true } } as typeof out) : out
          }
          return { ...step, io: (step as typeof step & { later: Io }).later }
        },
      },
    }),
    config: { ...CALM, high: 2, crashes: 1 },
  },
  'a token of the other lane acknowledged with DIRTY': {
    guard: 'the release of a dirty run replaces the token of its own lane only',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      take: {
        ...take,
        next: (step, answer, now) => take.next(step.name === 'dirty' ? { ...step, sameLane: true } : step, answer, now),
      },
    }),
    config: { ...CALM, high: 2, low: 1 },
  },
  'DIRTY that moves the record to its own lane': {
    guard: 'a running record never changes its lane: tokens dropped for it may still be there',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      take: asking(
        take,
        publishing((message, step) =>
          step.name === 'dirty' && message.role === 'record'
            ? { ...message, record: { ...message.record, lane: step.claim.token.lane } }
            : message,
        ),
      ),
    }),
    config: { ...CALM, high: 2, low: 1 },
  },
  'RENEW without CAS': {
    guard: 'only the owner renews',
    breaks: 'law 2',
    subject: withMachines({ renew: asking(renew, publishing(unguarded)) }),
    config: { ...CALM, expiries: 1, renews: 1 },
  },
  'RENEW without cancelling': {
    guard: 'the watchdog of the lease before goes with the renewal',
    breaks: 'bound',
    subject: withMachines({ renew: asking(renew, publishing(withoutCancel)) }),
    config: { ...CALM, renews: 1, slow: 0, maxRuns: 1 },
  },
  'RENEW makes a dirty record clean': {
    guard: 'a renewal keeps what others noted',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({ renew: hearing(renew, clean) }),
    config: { ...CALM, high: 2, renews: 1 },
  },
  'one subject for all generations': {
    guard: 'a fire purges the very write that it read',
    breaks: 'law 2',
    subject: withMachines({
      take: asking(take, publishing(oneGeneration)),
      renew: asking(renew, publishing(oneGeneration)),
      finish: asking(finish, publishing(oneGeneration)),
    }),
    config: { ...CALM, expiries: 1, renews: 1 },
  },
  'FINISH makes a dirty record clean': {
    guard: 'a dirty run leaves a token',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({ finish: ignoringDirty }),
    config: { ...CALM, high: 2 },
  },
  'FINISH without CAS': {
    guard: 'only the owner ends a run',
    breaks: 'law 2',
    subject: withMachines({ finish: asking(finish, publishing(unguarded)) }),
    config: { ...CALM, expiries: 1, ends: 1, endings: ['requeue'], workers: 3 },
  },
  'FINISH without cancelling': {
    guard: 'the release takes the record away in the same write',
    breaks: 'law 7',
    subject: withMachines({ finish: asking(finish, publishing(withoutCancel)) }),
    config: CALM,
  },
  'FINISH releases in two steps': {
    guard: 'a release replaces the token: one that is about to be acknowledged takes nothing with it',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({ finish: releaseInTwo }),
    config: { ...CALM, high: 2 },
  },
  'FINISH releases to the other lane': {
    guard: 'the rerun of a dirty run replaces the tokens that were dropped for it',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      finish: asking(
        finish,
        publishing((message) => (message.role === 'token' ? { ...message, lane: otherLane(message.lane) } : message)),
      ),
    }),
    config: { ...CALM, high: 3 },
  },
  'direct TAKE without CAS': {
    guard: 'a change takes a key without a token only where no record stands',
    breaks: 'law 2',
    subject: inTake('take', unguarded),
    config: { ...CALM, high: 0, announces: 2 },
  },
  'a change of an occupied key is not queued': {
    guard: 'what no run here covers is queued',
    breaks: 'laws 1, 3, 4',
    subject: { ...PRODUCTION, queuesRefused: false },
    config: { ...CALM, announces: 1 },
  },
  'a pass covers what came after it had begun': {
    guard: 'only what is read later covers a change',
    breaks: 'laws 1, 3, 4',
    subject: withPasses({
      note: (present, note) => (present.open ? { ...present, seen: [...present.seen, note] } : undefined),
    }),
    config: { ...CALM, announces: 1 },
  },
  'the end of a run covers everything': {
    guard: 'what came after the last pass had begun is queued',
    breaks: 'laws 1, 3, 4',
    subject: withPasses({ divide: ({ seen, unseen }) => ({ safe: [...seen, ...unseen], unsafe: [] }) }),
    config: { ...CALM, announces: 1 },
  },
  'the cursor passes a change that a run was told of': {
    guard: 'until the run has ended, only the cursor before it keeps the change',
    breaks: 'laws 1, 3, 4',
    subject: { ...PRODUCTION, cursorWaits: false },
    config: { ...CALM, announces: 2, high: 0, crashes: 1 },
  },
  'a pass that begins before the acknowledgement is confirmed': {
    guard: 'a pass reads when no ENQUEUE can coalesce into the token that it covers',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({ absorb: asking(transitions.absorb, () => ({ do: 'acknowledge', confirmed: false })) }),
    config: { ...CALM, high: 3, tokenLaps: true },
  },
  'a pass that takes in a token after its lease': {
    guard: 'a token goes only while the record stands: it may be the one that the end of the lease has left',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      absorb: { ...transitions.absorb, start: (input) => transitions.absorb.start(input, CLOCKS.inTime) },
    }),
    config: { ...CALM, tokenLaps: true, expiries: 1, crashes: 1 },
  },
  'a pass that skips the barrier': {
    guard: 'with replicas a pass too waits until its token is gone',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      absorb: {
        ...transitions.absorb,
        start: (input, now) =>
          transitions.absorb.start({ ...input, terms: { ...input.terms, replicated: false } }, now),
      },
    }),
    config: { ...replicated, high: 3, tokenLaps: true },
  },
  'a fenced run says nothing': {
    guard: 'a run that lost its lease queues its key again',
    breaks: 'laws 1, 3, 4',
    subject: { ...PRODUCTION, requeuesFenced: false },
    config: { ...CALM, expiries: 1 },
  },
  'PARK without CAS': {
    guard: 'only what does not run is parked',
    breaks: 'law 2',
    subject: withMachines({ withdraw: asking(withdraw, publishing(unguarded)) }),
    config: { ...BY_HAND, byHand: ['park'] },
  },
  'PURGE of a running key': {
    guard: 'a record is only purged while nobody runs its key',
    breaks: 'law 2',
    subject: withMachines({ withdraw: hearing(withdraw, idling) }),
    config: { ...BY_HAND, byHand: ['purge'] },
  },
  'RETRY of a running key': {
    guard: 'a record is only fired while nobody runs its key',
    breaks: 'law 2',
    subject: withMachines({ retry: hearing(retry, idling) }),
    config: { ...BY_HAND, byHand: ['retry'] },
  },
  'a seen token removed before the record': {
    guard: 'a token that was read goes only when the record stands',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      take: after(({ seen }) => ({ do: 'removeToken', sequence: seen?.sequence ?? 0 }), take),
    }),
    config: { ...CALM, sightings: 1, crashes: 1 },
  },
  'a run that begins before the removal of its seen token is answered': {
    guard: 'state is read only when no ENQUEUE can coalesce into a token that is about to go',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      take: hearing(take, (answer, { name }) => (name === 'remove' ? { kind: 'removed' } : answer)),
    }),
    config: { ...CALM, high: 2, sightings: 1, faults: 1 },
  },
  'a seen token of a running key removed': {
    guard: 'a token that was read stays where it is while another run has its key',
    breaks: 'laws 1, 3, 4',
    subject: withMachines({
      take: {
        ...take,
        next: (step, answer, now) => {
          const out = take.next(step, answer, now)
          const { claim } = step
          if ('io' in out || out.result.kind !== 'occupied' || !claim.seen) return out
          return { name: 'dismiss', claim, io: { do: 'removeToken', sequence: claim.seen.sequence } }
        },
      },
    }),
    config: { ...replicated, high: 2, sightings: 1, oneRecord: true },
  },
  'a conflict of an own timer is always foreign': {
    guard: 'after a lost answer the own nonce in the record means that the timer was taken',
    breaks: 'stall',
    subject: withMachines({ take: hearing(take, foreign) }),
    config: { ...OWN_TIMER, faults: 1, delays: false, neverStranded: true },
  },
  'an own timer that is not cancelled': {
    guard: 'a timer that its process takes does not fire',
    breaks: 'one record',
    subject: inTake('steal', withoutCancel),
    config: { ...OWN_TIMER, oneRecord: true },
  },
  'an own timer taken without CAS': {
    guard: 'a timer is only taken as it was stored: its key may run by now',
    breaks: 'law 2',
    subject: inTake('steal', unguarded),
    config: { ...OWN_TIMER, high: 2 },
  },
  'no janitor': {
    guard: 'a token that nobody will deliver is replaced',
    breaks: 'law 7',
    subject: { ...PRODUCTION, janitor: false },
    config: { ...CALM, resurrections: 1 },
  },
  'a timer armed again without CAS': {
    guard: 'a timer is only armed again as it was read: its key may run by now',
    breaks: 'law 2',
    subject: rearming(unguarded),
    config: REARMED,
  },
  'a timer armed again without cancelling': {
    guard: 'a timer that is armed again has one schedule',
    breaks: 'one record',
    subject: rearming(withoutCancel),
    config: { ...REARMED, oneRecord: true },
  },
  'no janitor of timers': {
    guard: 'a schedule that the server has given up is armed anew',
    breaks: 'law 7',
    subject: { ...PRODUCTION, janitor: false },
    config: { ...CALM, endings: ['requeue'], ends: 1, refusals: 1 },
  },
}
