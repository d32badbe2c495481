/**
 * What the model does not look at: attempts, errors, lanes of timers, causes, and what a command answers. The order of the
 * steps and each guard of the protocol are its own: model.test.ts.
 */
import { describe, expect, it } from 'vitest'
import { type Answer, type Io, type KeyRecord, type Publish, withCauses } from '../../streams/queue/record.ts'
import { deadTokens, timerAgain, tokenAgain, tokenOf } from '../../streams/queue/tokens.ts'
import { transitions } from './model/configs.ts'

const NOW = 1_000_000
const terms = { leaseMs: 10_000, replicated: false }
const token = { lane: 'high' as const, sequence: 7, attempt: 2 }
const input = { token, nonce: 'me', freshUntil: NOW + 5000, terms }

const stored = (sequence: number): Answer => ({ kind: 'stored', sequence })
const conflict: Answer = { kind: 'conflict' }
const unknown: Answer = { kind: 'unknown' }
const record = (fields: Partial<KeyRecord> = {}): Answer => ({ kind: 'record', record: recordOf(fields) })
const absent: Answer = { kind: 'record', record: undefined }

function recordOf(fields: Partial<KeyRecord> = {}): KeyRecord {
  return {
    state: 'running',
    sequence: 20,
    generation: 'r-other-0',
    owner: 'other',
    lane: 'high',
    attempt: 0,
    at: NOW + 8000,
    since: NOW - 2000,
    dirty: false,
    otherLaneWaits: false,
    ...fields,
  }
}

type AnyStep = { io: Io } | { result: unknown }
interface AnyMachine {
  start(input: never, now: number): AnyStep
  next(step: never, answer: Answer, now: number): AnyStep
}

/** Feeds the answers, `[answer, time]` where time matters; gives the last step. */
function after(machine: AnyMachine, start: object, ...answers: (Answer | [Answer, number])[]): AnyStep {
  let step = machine.start(start as never, NOW)
  for (const answer of answers) {
    const [what, now] = Array.isArray(answer) ? answer : [answer, NOW]
    step = machine.next(step as never, what, now)
  }
  return step
}

function ioOf(step: AnyStep): Io {
  if ('io' in step) return step.io
  throw new Error(`ended with ${JSON.stringify(step.result)}`)
}
function resultOf(step: AnyStep): unknown {
  if ('result' in step) return step.result
  throw new Error(`asks for ${step.io.do}`)
}
function messageOf(step: AnyStep): Publish {
  const io = ioOf(step)
  if (io.do === 'publish') return io.message
  throw new Error(`asks for ${io.do}`)
}
const take = (start: object, ...answers: Answer[]) => after(transitions.take, start, ...answers)
const expectedRecord = (sequence: number) => ({ of: 'record', sequence })

it('ENQUEUE creates the token only if there is none, and repeats itself until the answer is definite', () => {
  const start = tokenOf('low', 3)
  expect(start).toEqual({ role: 'token', lane: 'low', attempt: 3, expected: { of: 'token', sequence: 0 } })
  expect(messageOf(after(transitions.once, start, unknown, { kind: 'busy' }))).toEqual(start)
  expect(resultOf(after(transitions.once, start, unknown, conflict))).toBe('conflict')
})

describe('TAKE', () => {
  const waiting = { state: 'waiting', generation: 'w-x-1', owner: 'before', attempt: 5, reason: 'Error' } as const
  const own = { ...input, direct: true, waiting: recordOf(waiting) }
  const written = { role: 'record', record: { state: 'running', owner: 'me', lane: 'high', at: NOW + 10_000 } }
  it.each([
    ['of an idle key has the attempt of its token', take(input), 2, 0],
    ['of a key that waits has the higher attempt', take(input, conflict, record(waiting)), 5, 20],
    ['of a parked key too', take(input, conflict, record({ state: 'parked', attempt: 1 })), 2, 20],
    ['of a timer of this process reads nothing', take({ ...own, isDue: true }), 5, 20],
  ])('%s', (_, step, attempt, sequence) => {
    expect(messageOf(step)).toMatchObject({ ...written, expected: expectedRecord(sequence) })
    expect(messageOf(step)).toMatchObject({ record: { attempt } })
  })
  it.each<[string, object, Answer[], object]>([
    ['a change of a key that runs is left to whoever queues it', {}, [conflict, record()], { kind: 'occupied' }],
    ['a change is no part of a lease that is nearly over', {}, [stored(9)], { kind: 'dropped' }],
    ['a due timer that has fired is left alone', { ...own, isDue: true }, [conflict, absent], { kind: 'occupied' }],
    [
      'a due timer leaves the timer that stands now',
      { ...own, isDue: true },
      [conflict, record({ state: 'waiting', generation: 'w-other-1' })],
      { kind: 'occupied' },
    ],
    ['a delivery that is too old is dropped', { freshUntil: NOW - 1 }, [], { kind: 'dropped' }],
    ['a due timer is too, while it waits', { ...own, isDue: true, freshUntil: NOW - 1 }, [], { kind: 'dropped' }],
    ['a lost answer is given up when the lease is nearly over', {}, [unknown], { kind: 'dropped' }],
  ])('%s', (what, more, answers, result) => {
    const now = what.includes('nearly over') ? NOW + 8001 : NOW
    const asked = answers.map((answer): [Answer, number] => [answer, now])
    expect(resultOf(after(transitions.take, { ...input, direct: true, ...more }, ...asked))).toMatchObject(result)
  })
  it('again has another generation, when the record is gone at the second look', () => {
    expect(messageOf(take(input, conflict, absent))).toMatchObject({ record: { generation: 'r-me-1' } })
  })
  it('of a change goes on in the ordinary way when the timer of this process does not stand any more', () => {
    expect(messageOf(take(own, conflict))).toMatchObject({ expected: expectedRecord(0) })
  })
})

describe('DIRTY', () => {
  const { sequence: _, ...recordFields } = recordOf({ at: NOW + 4321, since: NOW - 99 })
  const running = { attempt: 1, at: NOW + 4321, since: NOW - 99, owner: 'other', generation: 'r-other-4' }
  it('leaves owner and end of lease as they are, and raises the attempt', () => {
    expect(messageOf(take(input, conflict, record(running)))).toEqual({
      role: 'record',
      record: { ...recordFields, attempt: 2, dirty: true, generation: 'r-me-1' },
      expected: expectedRecord(20),
      cancels: 'r-other-4',
    })
  })
  it('is written even over a record that is dirty already', () => {
    const dirty = record({ ...running, dirty: true })
    expect(messageOf(take(input, conflict, dirty))).toMatchObject({ role: 'record', record: { dirty: true } })
  })
  it('takes again when the record has changed', () => {
    expect(messageOf(take(input, conflict, record(running), conflict))).toMatchObject({ record: { owner: 'me' } })
  })
  it('of the other lane is written once', () => {
    const low = { ...input, token: { ...token, lane: 'low' as const } }
    expect(messageOf(take(low, conflict, record(running)))).toMatchObject({ record: { otherLaneWaits: true } })
    const known = record({ ...running, otherLaneWaits: true })
    expect(resultOf(take(low, conflict, known))).toEqual({ kind: 'dirty' })
  })
})

const held = (fields: Partial<KeyRecord> = {}) => ({
  record: recordOf({ owner: 'me', generation: 'r-me-0', attempt: 3, ...fields }),
  writes: 1,
})

it('ABSORB repeats itself until the answer is definite', () => {
  expect(ioOf(after(transitions.absorb, { held: held(), terms }, unknown, unknown))).toMatchObject({
    do: 'acknowledge',
  })
})

describe('RENEW', () => {
  const start = { held: held({ dirty: true }), terms }
  it('of a run that has changed something forgets the runs before it that were cut short, and keeps a suspect one', () => {
    const cut = { held: held({ cuts: 4, losses: 9, suspect: true }), terms }
    expect(messageOf(after(transitions.renew, cut))).toMatchObject({ record: { cuts: 4, suspect: true } })
    const progressed = messageOf(after(transitions.renew, { ...cut, progressed: true }))
    // A function that changes something and then ends its process, each time, still waits longer.
    expect(progressed).toMatchObject({ record: { attempt: 3, losses: 9, suspect: true } })
    expect(progressed).not.toHaveProperty('record.cuts')
    const dirty = record({ owner: 'me', generation: 'r-x-0', sequence: 25, dirty: true, cuts: 2 })
    const again = messageOf(after(transitions.renew, { ...cut, progressed: true }, conflict, dirty))
    expect(again).toMatchObject({ record: { dirty: true } })
    expect(again).not.toHaveProperty('record.cuts')
  })
  it('finds its own write after an ambiguous answer', () => {
    const mine = record({ owner: 'me', generation: 'r-me-1', sequence: 26, at: NOW + 10_000 })
    expect(resultOf(after(transitions.renew, start, unknown, conflict, mine))).toMatchObject({
      kind: 'held',
      held: { record: { sequence: 26, at: NOW + 10_000 } },
    })
  })
  it.each([
    ['nothing', absent],
    ["another's record", record()],
    ['a waiting record', record({ owner: 'me', state: 'waiting' })],
  ])('is lost when it finds %s', (_, found) => {
    expect(resultOf(after(transitions.renew, start, conflict, found))).toEqual({ kind: 'lost' })
  })
  it('is lost when no answer comes before the lease ends', () => {
    expect(resultOf(after(transitions.renew, start, unknown, [unknown, NOW + 7600]))).toEqual({ kind: 'lost' })
  })
})

describe('FINISH', () => {
  const done = { kind: 'done' as const }
  const requeue = { kind: 'requeue' as const, at: NOW + 60_000 }
  const error = { kind: 'error' as const, at: NOW + 500, message: 'boom' }
  const terminal = { kind: 'terminal' as const, message: 'bad input' }
  const handback = { kind: 'handback' as const }

  it('done leaves nothing behind', () => {
    const step = after(transitions.finish, { held: held(), ending: done })
    expect(messageOf(step)).toEqual({ role: 'done', expected: expectedRecord(20), cancels: 'r-me-0' })
    expect(resultOf(after(transitions.finish, { held: held(), ending: done }, stored(40)))).toEqual({ kind: 'idle' })
  })
  it.each([
    ['requeue', requeue, { state: 'waiting', at: NOW + 60_000, attempt: 0, reason: 'Requeue' }, 'waiting'],
    ['error', error, { state: 'waiting', at: NOW + 500, attempt: 4, reason: 'Error', error: 'boom' }, 'waiting'],
    ['terminal', terminal, { state: 'parked', attempt: 0, reason: 'Terminal', error: 'bad input' }, 'parked'],
  ])('%s arms one timer in the place of the lease', (_, ending, expected, result) => {
    const start = { held: held(), ending }
    const message = messageOf(after(transitions.finish, start))
    expect(message).toMatchObject({
      role: 'record',
      record: { ...expected, dirty: false },
      expected: expectedRecord(20),
      cancels: 'r-me-0',
    })
    expect(resultOf(after(transitions.finish, start, stored(40)))).toMatchObject({ kind: result })
  })
  it('a timer that was asked for is urgent, a failed run stays in its lane', () => {
    const low = held({ lane: 'low' })
    expect(messageOf(after(transitions.finish, { held: low, ending: requeue }))).toMatchObject({
      record: { lane: 'high' },
    })
    expect(messageOf(after(transitions.finish, { held: low, ending: error }))).toMatchObject({
      record: { lane: 'low' },
    })
  })
  it.each([
    ['done', done, 0],
    ['requeue', requeue, 0],
    ['error', error, 4],
    ['terminal', terminal, 0],
    ['handback', handback, 3],
  ])('%s of a dirty key replaces its token at once', (_, ending, attempt) => {
    const start = { held: held({ dirty: true }), ending }
    expect(messageOf(after(transitions.finish, start))).toMatchObject({
      role: 'token',
      lane: 'high',
      attempt,
      expected: expectedRecord(20),
      cancels: 'r-me-0',
    })
    expect(resultOf(after(transitions.finish, start, stored(40)))).toEqual({ kind: 'queued' })
  })
  it.each([
    ['done', done, undefined],
    ['requeue', requeue, undefined],
    ['error', error, undefined],
    ['terminal', terminal, undefined],
    ['handback', handback, 4],
    ['postponed', { kind: 'postponed' as const, at: NOW + 500, message: 'lost' }, 4],
  ])('%s: only a run that ended ends a series of runs that were cut short', (_, ending, cuts) => {
    const cut = { record: { ...held().record, cuts: 4 }, writes: 1 }
    const message = messageOf(after(transitions.finish, { held: cut, ending }))
    expect(message.role === 'record' ? message.record.cuts : message.role === 'token' ? message.cuts : undefined).toBe(
      cuts,
    )
  })
  it('replaces the token of the other lane only if none of its own lane was dropped', () => {
    const laneOf = (fields: Partial<KeyRecord>) =>
      messageOf(after(transitions.finish, { held: held(fields), ending: done }))
    expect(laneOf({ otherLaneWaits: true })).toMatchObject({ role: 'token', lane: 'low' })
    expect(laneOf({ otherLaneWaits: true, dirty: true })).toMatchObject({ role: 'token', lane: 'high' })
  })
  it.each([
    ['nothing', absent],
    ["another's record", record()],
  ])('is fenced when it finds %s', (_, found) => {
    expect(resultOf(after(transitions.finish, { held: held(), ending: done }, conflict, found))).toEqual({
      kind: 'fenced',
    })
  })
  it('after an ambiguous answer finds its own timer, or cannot know', () => {
    const start = { held: held(), ending: requeue }
    const mine = record({ owner: 'me', state: 'waiting', generation: 'w-me-1' })
    expect(resultOf(after(transitions.finish, start, unknown, conflict, mine))).toMatchObject({ kind: 'waiting' })
    expect(resultOf(after(transitions.finish, start, unknown, conflict, absent))).toEqual({ kind: 'unclear' })
  })
  it('an ambiguous answer is forgotten once the record is known to be still there', () => {
    const dirty = record({ owner: 'me', generation: 'r-x-0', sequence: 33, dirty: true })
    const start = { held: held(), ending: done }
    expect(resultOf(after(transitions.finish, start, unknown, conflict, dirty, conflict, absent))).toEqual({
      kind: 'fenced',
    })
  })
})

describe('a suspect', () => {
  const suspect = { attempt: 3, suspect: true }
  const suspected = { ...input, token: { ...token, suspect: true } }
  const waiting = record({ state: 'waiting', generation: 'w-x-1', ...suspect })
  const running = { start: { held: held(suspect) }, dirty: { held: held({ ...suspect, dirty: true }) } }

  it('is one to whoever takes its token or its timer', () => {
    expect(messageOf(after(transitions.take, suspected))).toMatchObject({ record: { suspect: true } })
    expect(messageOf(after(transitions.take, input, conflict, waiting))).toMatchObject({ record: suspect })
    expect(messageOf(after(transitions.take, input))).not.toHaveProperty('record.suspect')
  })
  it('makes the run that has the key already a suspect', () => {
    expect(messageOf(after(transitions.take, suspected, conflict, record()))).toMatchObject({
      record: { owner: 'other', suspect: true },
    })
  })
  it.each([
    ['error', { kind: 'error' as const, at: NOW, message: 'boom' }],
    ['terminal', { kind: 'terminal' as const, message: 'bad input' }],
    ['postponed', { kind: 'postponed' as const, at: NOW, message: 'lost' }],
  ])('stays one after %s', (_, ending) => {
    expect(messageOf(after(transitions.finish, { ...running.start, ending }))).toMatchObject({
      role: 'record',
      record: { suspect: true },
    })
    expect(messageOf(after(transitions.finish, { ...running.dirty, ending }))).toMatchObject({
      role: 'token',
      suspect: true,
    })
  })
  it('stays one when it is handed back, revived, retried or parked by hand', () => {
    const handedBack = after(transitions.finish, { ...running.start, ending: { kind: 'handback' } })
    expect(messageOf(handedBack)).toMatchObject({ role: 'token', ...suspect })
    expect(tokenAgain(suspected.token)).toMatchObject({ suspect: true })
    expect(messageOf(after(transitions.retry, {}, waiting))).toMatchObject({ role: 'token', ...suspect })
    const park = { to: 'park', nonce: 'me', tokens: [suspected.token] }
    expect(messageOf(after(transitions.withdraw, park, absent))).toMatchObject({ record: { suspect: true } })
    expect(messageOf(after(transitions.withdraw, { ...park, tokens: [] }, waiting))).toMatchObject({ record: suspect })
  })
  it('a lease that ended once is not forgotten when its key runs already, is handed back or revived, but when a run has ended', () => {
    const found = take({ ...input, token: { ...token, cutShort: true } }, conflict, record())
    expect(messageOf(found)).toMatchObject({ record: { owner: 'other', reason: 'CutShort' } })
    const cut = { ...held(), record: { ...held().record, reason: 'CutShort' as const, dirty: true } }
    const ended = (kind: 'handback' | 'done') => messageOf(after(transitions.finish, { held: cut, ending: { kind } }))
    expect(ended('handback')).toMatchObject({ role: 'token', cutShort: true })
    expect(ended('done')).not.toHaveProperty('cutShort')
    expect(tokenAgain({ ...suspected.token, cutShort: true })).toMatchObject({ cutShort: true })
  })
  it('is none any more when a run has succeeded', () => {
    const requeue = { kind: 'requeue', at: NOW + 60_000 }
    expect(messageOf(after(transitions.finish, { ...running.start, ending: requeue }))).not.toHaveProperty(
      'record.suspect',
    )
    for (const ending of [{ kind: 'done' }, requeue])
      expect(messageOf(after(transitions.finish, { ...running.dirty, ending }))).not.toHaveProperty('suspect')
  })
})

describe('the causes of a run', () => {
  const edit = ['modified ConfigMap.v1 n/a@7']
  const caused = { ...input, token: { ...token, causes: edit } }
  it('travel from the token into the record, and again into a token that is handed back or replaced', () => {
    expect(messageOf(after(transitions.take, caused))).toMatchObject({ record: { causes: edit } })
    const handedBack = after(transitions.finish, { held: held({ causes: edit }), ending: { kind: 'handback' } })
    expect(messageOf(handedBack)).toMatchObject({ role: 'token', causes: edit })
    expect(tokenAgain(caused.token)).toMatchObject({ causes: edit })
  })
  it('are those of the next run once the record is dirty, so that the token which follows has only these', () => {
    const dirty = messageOf(after(transitions.take, caused, conflict, record({ causes: ['resync'] })))
    expect(dirty).toMatchObject({ record: { dirty: true, causes: edit } })
    const again = record({ dirty: true, causes: ['resync'] })
    expect(messageOf(after(transitions.take, caused, conflict, again))).toMatchObject({
      record: { causes: ['resync', ...edit] },
    })
    const rerun = after(transitions.finish, { held: held({ dirty: true, causes: edit }), ending: { kind: 'done' } })
    expect(messageOf(rerun)).toMatchObject({ role: 'token', causes: edit })
  })
  it('are not those of the timer that follows it', () => {
    const set = after(transitions.finish, { held: held({ causes: edit }), ending: { kind: 'requeue', at: NOW } })
    expect(messageOf(set)).not.toHaveProperty('record.causes')
  })
  it('of a retry are the user', () => {
    const parked = record({ state: 'parked', generation: 'p-x-1' })
    expect(messageOf(after(transitions.retry, {}, parked))).toMatchObject({ causes: ['by hand'] })
  })
  it('are at most four, each once, and then others', () => {
    expect(withCauses(['a', 'b'], undefined, ['b', 'c'])).toEqual({ causes: ['a', 'b', 'c'] })
    const many = withCauses(['a', 'b'], ['c', 'd', 'e'])
    expect(many).toEqual({ causes: ['a', 'b', 'c', 'd', 'others'] })
    expect(withCauses(many.causes, ['f'])).toEqual(many)
    expect(withCauses(undefined, [])).toEqual({})
  })
})

describe('janitor', () => {
  const at = (subject: string, sequence: number) => ({ subject, sequence })
  it('suspects only what two passes have seen below the floor with the same sequence', () => {
    const before = new Map([
      ['work.f.high.a', 1],
      ['work.f.high.b', 2],
    ])
    const now = [at('work.f.high.a', 1), at('work.f.high.b', 5), at('work.f.high.c', 3)]
    expect(deadTokens(before, now)).toEqual([at('work.f.high.a', 1)])
  })
  it('replaces exactly the token that it saw', () => {
    expect(tokenAgain(token)).toMatchObject({ role: 'token', attempt: 2, expected: { of: 'token', sequence: 7 } })
  })
  it('arms exactly the timer that it saw anew, as it was', () => {
    const waiting = recordOf({ state: 'waiting', generation: 'w-x-1', attempt: 5, sequence: 20, error: 'failed' })
    const { sequence, ...same } = waiting
    expect(timerAgain(waiting, 'j')).toEqual({
      role: 'record',
      record: { ...same, generation: 'w-j-0' },
      expected: { of: 'record', sequence },
      cancels: 'w-x-1',
    })
  })
})

describe('RETRY by hand', () => {
  const waiting = record({ state: 'waiting', generation: 'w-x-1', attempt: 5, sequence: 20, error: 'failed' })

  it('does what the server does when the timer is due, on the record as it was read', () => {
    expect(messageOf(after(transitions.retry, {}, waiting))).toEqual({
      role: 'token',
      lane: 'high',
      attempt: 5,
      error: 'failed',
      causes: ['by hand'],
      expected: expectedRecord(20),
      cancels: 'w-x-1',
    })
    expect(resultOf(after(transitions.retry, {}, waiting, stored(21)))).toBe('queued')
  })

  it('looks again after a conflict, and knows an answer that was lost', () => {
    const moved = record({ state: 'waiting', generation: 'w-y-1', sequence: 30 })
    expect(messageOf(after(transitions.retry, {}, waiting, conflict, moved))).toMatchObject({ cancels: 'w-y-1' })
    expect(resultOf(after(transitions.retry, {}, waiting, unknown, conflict, absent))).toBe('queued')
    expect(resultOf(after(transitions.retry, {}, waiting, conflict, absent))).toBe('none')
    expect(ioOf(after(transitions.retry, {}, unknown))).toEqual({ do: 'readRecord' })
  })
})

describe('PARK and PURGE by hand', () => {
  const removed: Answer = { kind: 'removed' }
  const waiting = record({
    state: 'waiting',
    generation: 'w-x-1',
    attempt: 2,
    sequence: 20,
    lane: 'low',
    error: 'failed',
  })
  const tokens = [
    { lane: 'high' as const, sequence: 7, attempt: 3 },
    { lane: 'low' as const, sequence: 9, attempt: 0 },
  ]
  const park = { to: 'park', nonce: 'me', tokens }
  const purge = { to: 'purge', nonce: 'me', tokens }
  const { withdraw } = transitions

  it('parks in place of what waits, with what is known of it', () => {
    expect(messageOf(after(withdraw, { ...park, tokens: [] }, waiting))).toMatchObject({
      role: 'record',
      record: { state: 'parked', generation: 'p-me-0', lane: 'low', attempt: 2, reason: 'Withdrawn', error: 'failed' },
      expected: expectedRecord(20),
      cancels: 'w-x-1',
    })
    expect(messageOf(after(withdraw, park, absent))).toMatchObject({
      record: { state: 'parked', attempt: 3 },
      expected: expectedRecord(0),
    })
  })

  it('takes away the tokens that were seen, after the record', () => {
    for (const [act, result] of [
      [park, 'parked'],
      [purge, 'purged'],
    ] as const) {
      expect(ioOf(after(withdraw, act, waiting, stored(21)))).toEqual({ do: 'removeToken', sequence: 7 })
      expect(ioOf(after(withdraw, act, waiting, stored(21), removed))).toEqual({ do: 'removeToken', sequence: 9 })
      expect(resultOf(after(withdraw, act, waiting, stored(21), removed, unknown, removed))).toBe(result)
    }
  })

  it('purges a record in the way a run ends that leaves nothing', () => {
    expect(messageOf(after(withdraw, purge, waiting))).toEqual({
      role: 'done',
      expected: expectedRecord(20),
      cancels: 'w-x-1',
    })
  })

  it('says when there is nothing, and knows an answer that was lost', () => {
    const none = { ...purge, tokens: [] }
    expect(resultOf(after(withdraw, none, absent))).toBe('none')
    expect(resultOf(after(withdraw, { ...park, tokens: [] }, absent))).toBe('none')
    expect(resultOf(after(withdraw, none, waiting, conflict, absent))).toBe('none')
    expect(resultOf(after(withdraw, none, waiting, unknown, conflict, absent))).toBe('purged')
    const mine = record({ state: 'parked', generation: 'p-me-0', owner: 'me' })
    expect(resultOf(after(withdraw, { ...park, tokens: [] }, waiting, unknown, conflict, mine))).toBe('parked')
  })
})
