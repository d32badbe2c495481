import { describe, expect, it } from 'vitest'
import { ConflictError, type PerformInput, RetryAfterError, type RunInput, TerminalError } from '#contracts'
import { type Answer, type Ask, FunctionError, RefusedError, RunTimeoutError } from '#reconcile'
import { PAUSED_ANNOTATION } from '#spec'
import { child, widget } from '../dispatch/objects.ts'
import {
  asksOf,
  drive,
  endOf,
  FINALIZER,
  fails,
  returns,
  type Script,
  type Start,
  type Step,
  sees,
  stored,
  widgets,
} from './driver.ts'

const POD = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p' } }
const SECRET = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 's' }, stringData: { password: 'hunter22' } }
const ADD = { kind: 'addUser', name: 'ann' }
const DROP = { kind: 'dropUser', name: 'bob' }
const outside = widgets({ external: {}, finalize: false, writes: ['Deletion'] })
const finalizing = widgets({ external: {}, finalize: true })
const going = widget({ metadata: { finalizers: [FINALIZER], deletionTimestamp: '2030-01-01T00:00:00Z' } })

const reads = (external: unknown): Answer => ({ did: 'read', external })
/** Requests an effect unless the state contains Ann. */
const decides = (ask: Ask): Answer =>
  returns(JSON.stringify((ask as { input: RunInput }).input.external).includes('ann') ? {} : { effect: ADD })

const returnedBy = (answer: Answer) => ('did' in answer && answer.did === 'call' ? (answer.returned as object) : {})

const notesOf = (steps: readonly Step[]) => steps.flatMap(({ notes }) => notes)
const inputsOf = (steps: readonly Step[]) => steps.flatMap(({ ask }) => (ask.do === 'call' ? [ask.input] : []))

describe('a run of a function with an external system asks, in this order', () => {
  it.each<[what: string, script: Script, asks: string, of?: typeof outside]>([
    ['a read before the call', {}, 'observe read call finish'],
    ['no read where it has none', {}, 'observe call finish', widgets()],
    [
      'no read for a paused object',
      { observe: [sees(widget({ metadata: { annotations: { [PAUSED_ANNOTATION]: 'true' } } }))] },
      'observe writeStatus finish',
    ],
    [
      'the effect, then another look and another decision',
      { read: [reads([]), reads(['ann'])], call: [decides] },
      'observe read call perform observe read call finish',
    ],
    [
      'the effect after all writes of its outcome',
      {
        read: [reads([]), reads(['ann'])],
        observe: [sees(), sees(widget({ status: { phase: 'Up', observedGeneration: 1 } }), child('Pod', 'p'))],
        call: [(ask) => returns({ apply: [POD], status: { phase: 'Up' }, ...returnedBy(decides(ask)) })],
      },
      'observe read call write call writeStatus call perform observe read call finish',
    ],
    [
      'no word of recovery before the effect',
      {
        observe: [
          sees(widget({ status: { conditions: [{ type: 'Reconciled', status: 'False', reason: 'EffectFailed' }] } })),
        ],
        read: [reads([]), reads(['ann'])],
        call: [returns({ effect: ADD }), returns({})],
      },
      'observe read call perform observe read call writeStatus call finish',
    ],
    [
      'a second effect in the next round',
      {
        read: [reads([]), reads(['ann']), reads(['ann', '-bob'])],
        call: [returns({ effect: ADD }), returns({ effect: DROP }), returns({})],
      },
      'observe read call perform observe read call perform observe read call finish',
    ],
    [
      'the effect before the object is deleted',
      {
        read: [reads([]), reads(['ann'])],
        call: [returns({ effect: ADD, deleteObject: true }), returns({ deleteObject: true })],
      },
      'observe read call perform observe read call delete finish',
    ],
    [
      'the effect before the finalizer is removed',
      { observe: [sees(going)], read: [reads(['bob']), reads([])], call: [returns({ effect: DROP }), returns({})] },
      'observe read call perform observe read call writeFinalizers finish',
      finalizing,
    ],
    [
      'no effect while a write of its outcome is refused',
      {
        call: [returns({ apply: [POD], effect: ADD })],
        write: [{ did: 'write', results: [{ failed: new RefusedError('no', { reason: 'Forbidden' }) }] }],
      },
      'observe read call write call writeStatus call finish',
    ],
    [
      'one effect only once, also where it had no result that can be read',
      { call: [returns({ effect: ADD })] },
      'observe read call perform observe read call finish',
    ],
    [
      'nothing more where effects are not performed',
      { call: [returns({ effect: ADD })], perform: [{ did: 'perform', isSkipped: true }] },
      'observe read call perform finish',
    ],
    [
      'nothing more where the rate limit allows no read',
      { read: [{ did: 'read', limitedMs: 700 }] },
      'observe read finish',
    ],
    [
      'another pass after a conflict of an effect',
      {
        call: [returns({ effect: ADD }), returns({})],
        perform: [fails(new ConflictError('moved'))],
        read: [reads([]), reads([1])],
      },
      'observe read call perform observe read call finish',
    ],
    [
      'no further call when another pass reads the same',
      { finish: [{ did: 'finish', changed: true }] },
      'observe read call finish observe read finish',
    ],
    [
      'another call when another pass reads something else',
      { finish: [{ did: 'finish', changed: true }], read: [reads([]), reads(['ann'])] },
      'observe read call finish observe read call finish',
    ],
  ])('%s', (_, script, asks, of = outside) => {
    const steps = drive(script, of)
    expect(asksOf(steps)).toBe(asks)
  })
})

describe('a run of a function with an external system ends', () => {
  const failed = (error: Error): Script => ({
    read: [reads([])],
    call: [returns({ effect: ADD })],
    perform: [fails(error)],
  })
  it.each<[what: string, script: Script, end: object, start?: Start]>([
    [
      'in backoff when the system cannot be read',
      { read: [fails(new Error('no route'))] },
      { kind: 'error', message: 'the external system cannot be read: no route', retryAt: { afterMs: 1000 } },
    ],
    [
      'in backoff when an effect has failed and is wanted again',
      failed(new RunTimeoutError('the function did not finish within 5 s')),
      { kind: 'error', message: 'effect addUser: the function did not finish within 5 s', retryAt: { afterMs: 1000 } },
    ],
    [
      'in backoff when an effect is wanted again that was performed',
      { call: [returns({ effect: ADD })] },
      {
        kind: 'error',
        message: expect.stringContaining('effect addUser: it was performed'),
        retryAt: { afterMs: 1000 },
      },
    ],
    [
      'parked only by a terminal error of the function',
      failed(new TerminalError('no such zone', { reason: 'NoZone' })),
      { kind: 'terminal', message: 'effect addUser: no such zone' },
    ],
    [
      'when the function wants to be asked again',
      failed(new RetryAfterError('busy', { afterSeconds: 9 })),
      { kind: 'error', retryAt: { afterMs: 9000 } },
    ],
    [
      'without a failure of the object where its function is away',
      { read: [fails(new FunctionError('away', { isAway: true }))] },
      { kind: 'error', isCounted: false },
    ],
    [
      'well when the function decides otherwise after an effect that has failed',
      {
        call: [returns({ effect: ADD }), returns({ status: { phase: 'Refused' } }), returns({})],
        perform: [fails(new Error('no'))],
      },
      { kind: 'done' },
    ],
    [
      'later when the rate limit allows no read',
      { read: [{ did: 'read', limitedMs: 700 }] },
      { kind: 'requeue', at: { afterMs: 700 } },
    ],
    [
      'later, and not as a success, when it has failed before',
      { read: [{ did: 'read', limitedMs: 700 }] },
      { kind: 'error', retryAt: { afterMs: 700 }, isCounted: false },
      { attempt: 3 },
    ],
    [
      'later, and not as a success, when earlier runs have ended their process',
      { read: [{ did: 'read', limitedMs: 700 }] },
      { kind: 'error', retryAt: { afterMs: 700 }, isCounted: false },
      { suspect: true },
    ],
    [
      'with the error of its effect when the rate limit allows no read after it',
      {
        read: [reads([]), { did: 'read', limitedMs: 700 }],
        call: [returns({ effect: ADD })],
        perform: [fails(new Error('no'))],
      },
      { kind: 'error', message: 'effect addUser: no', retryAt: { afterMs: 1000 } },
    ],
    [
      'at the time that the API server asks for, where its configuration could not be read',
      { read: [fails(new Error('429'), { retryAfterSeconds: 7 })] },
      { kind: 'error', retryAt: { afterMs: 7000 } },
    ],
    [
      'with the timer of its outcome where effects are not performed',
      { call: [returns({ effect: ADD, requeueAfterSeconds: 5 })], perform: [{ did: 'perform', isSkipped: true }] },
      { kind: 'requeue', at: { afterMs: 5000 } },
    ],
    [
      'parked when what it read is too large, with the limit in the condition',
      { read: [reads('x'.repeat(2 ** 20))] },
      { kind: 'error', message: expect.stringContaining('may have 1048576'), retryAt: { afterMs: 300_000 } },
    ],
    [
      'parked when the effect has no kind that can be a label',
      { call: [returns({ effect: { kind: 'add user' } })] },
      { kind: 'terminal', message: expect.stringContaining('effect.kind') },
    ],
    [
      'parked when an effect is too large',
      { call: [returns({ effect: { kind: 'add', text: 'x'.repeat(2 ** 16) } })] },
      { kind: 'terminal', message: expect.stringContaining('64 KiB') },
    ],
  ])('%s', (_, script, end, start) => {
    expect(endOf(drive(script, outside, start))).toMatchObject(end)
  })

  it('parked when a function without an external system returns an effect', () => {
    const steps = drive({ call: [returns({ effect: ADD })] })
    expect(endOf(steps)).toMatchObject({ kind: 'terminal', message: expect.stringContaining('"external"') })
  })

  it('after eight effects, and goes on a second later', () => {
    let count = 0
    const steps = drive({ call: [() => returns({ effect: { kind: 'add', count: ++count } })] }, outside)
    expect(asksOf(steps).match(/perform/g)).toHaveLength(8)
    expect(endOf(steps)).toEqual({ kind: 'requeue', at: { afterMs: 1000 } })
  })

  it('in backoff after effects that all fail, however different they are', () => {
    let count = 0
    const call = [() => returns({ effect: { kind: 'add', count: ++count } })]
    const steps = drive({ call, perform: [fails(new Error('no'))] }, outside)
    expect(endOf(steps)).toMatchObject({ kind: 'error', message: 'effect add: no' })
  })

  it('shows the effect that has failed on the object when it goes on failing', () => {
    const steps = drive({ call: [returns({ effect: ADD })], perform: [fails(new Error('no'))] }, outside, {
      attempt: 4,
    })
    const patch = steps.flatMap(({ ask }) => (ask.do === 'writeStatus' ? [ask.patch.status] : []))
    expect(patch).toMatchObject([{ conditions: [{ reason: 'EffectFailed', message: 'effect addUser: no' }] }])
  })
})

describe('what a function is told of its external system', () => {
  it('is what was read, what was performed, and the same objects in each call', () => {
    const steps = drive(
      {
        read: [reads([]), reads(['ann'])],
        call: [returns({ effect: ADD }), returns({})],
        perform: [{ did: 'perform', result: { id: 7 } }],
        observe: [sees(), sees(stored(widget({ metadata: { labels: { a: 'b' } } })))],
      },
      outside,
    )
    expect(inputsOf(steps)).toMatchObject([
      { external: [] },
      { external: ['ann'], performed: { effect: ADD, result: { id: 7 } } },
    ])
    expect(inputsOf(steps)[0]).not.toHaveProperty('performed')
    expect(inputsOf(drive({}))[0]).not.toHaveProperty('external')
    const { external: _, ...decided } = inputsOf(steps)[0]!
    const asked = steps.flatMap(({ ask }) => (ask.do === 'read' || ask.do === 'perform' ? [ask.input] : []))
    expect(asked.slice(0, 2)).toEqual([
      { ...decided, ask: 'read' },
      { ...decided, ask: 'perform', effect: ADD } satisfies PerformInput,
    ])
  })

  it('is why an effect failed, without contents of Secrets', () => {
    const steps = drive(
      {
        call: [
          returns({ apply: [SECRET], effect: { ...ADD, password: 'hunter22' } }),
          ...Array.from({ length: 2 }, () => returns({ apply: [SECRET], effect: { ...ADD, password: 'hunter22' } })),
        ],
        perform: [fails(new Error('hunter22 is no password'))],
      },
      outside,
    )
    expect(inputsOf(steps).at(-1)?.performed?.error).toBe('[confidential] is no password')
    const [note] = notesOf(steps).filter((one) => one.note === 'performed')
    expect(note).toEqual({
      note: 'performed',
      kind: 'addUser',
      effect: '{"kind":"addUser","name":"ann","password":"[confidential]"}',
      error: '[confidential] is no password',
    })
    expect(JSON.stringify([endOf(steps), notesOf(steps)])).not.toContain('hunter22')
  })
})
