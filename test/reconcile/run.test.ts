import { describe, expect, it } from 'vitest'
import { ConflictError, type KubeObject, RetryAfterError, TerminalError } from '#contracts'
import { type Failed, GoneError, NamespaceTerminatingError, RefusedError, run } from '#reconcile'
import { PAUSED_ANNOTATION } from '#spec'
import { child, PODS, WIDGETS, widget } from '../dispatch/objects.ts'
import {
  asksOf,
  drive,
  endOf,
  FINALIZER,
  fails,
  GONE,
  returns,
  type Script,
  sees,
  stepsOf,
  stored,
  succeeds,
  widgets,
} from './driver.ts'

const POD = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p' } }
const MAP = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'c' }, data: { a: '1' } }
const paused = widget({ metadata: { annotations: { [PAUSED_ANNOTATION]: 'true' } } })
const going = (finalizers: string[]) => widget({ metadata: { finalizers, deletionTimestamp: '2030-01-01T00:00:00Z' } })
const finalizing = widgets({ finalize: true })
const OLD = 'cache.example.com/finalizer'
const FORMER = { formerFinalizers: [OLD] }
const labelled = widgets({ for: { ...widgets().spec.for, selector: 'app=web' } })
const left = widgets({ for: labelled.spec.for, finalize: true })
const placed = widgets({
  writes: ['Metadata'],
  related: [
    { ...PODS, namespacePath: 'status.namespace' },
    { ...PODS, byName: 'metadata.labels.pod' },
  ],
})
const theirs = widgets({ for: { ...widgets().spec.for, status: 'Untouched' } })
const CONFLICT = fails(new ConflictError('moved'))
const scaled = widgets({ acts: [{ ...WIDGETS, act: 'Scale' }] })
const SCALE = returns({ act: [{ act: 'Scale', on: widget(), replicas: 3 }] })
const MOVED = { did: 'act', results: [{ failed: new ConflictError('moved') }] } as const
const old = { did: 'writeStatus', result: { object: widget(), isOld: true } } as const

describe('a run asks, in this order', () => {
  it.each<[what: string, script: Script, asks: string, of?: ReturnType<typeof widgets>]>([
    ['nothing for an object that is gone', { observe: [GONE] }, 'observe finish'],
    ['nothing for an object that is being deleted', { observe: [sees(going([]))] }, 'observe finish'],
    ['nothing for an object outside the selection', {}, 'observe finish', labelled],
    [
      'the finalizer of an object that has left the selection, and no call',
      { observe: [sees(widget({ metadata: { finalizers: [FINALIZER] } }))] },
      'observe writeFinalizers finish',
      left,
    ],
    [
      'nothing for such an object that is paused',
      { observe: [sees(widget({ metadata: { ...paused.metadata, finalizers: [FINALIZER] } }))] },
      'observe finish',
      left,
    ],
    [
      'a call for such an object that was deleted before that was seen: who waits for a clean-up gets it',
      { observe: [sees(going([FINALIZER]))] },
      'observe call writeFinalizers finish',
      left,
    ],
    [
      'no second call for an object that leaves the selection in the middle of its run',
      {
        observe: [sees(widget({ metadata: { labels: { app: 'web' }, finalizers: [FINALIZER] } })), sees(widget())],
        call: [returns({ status: { phase: 'Up' } })],
        writeStatus: [CONFLICT],
      },
      'observe call writeStatus observe finish',
      left,
    ],
    ['one call when nothing is to be written', {}, 'observe call finish'],
    [
      'a call after each change of what the function has seen',
      { call: [returns({ apply: [POD], status: { phase: 'Up' } })] },
      'observe call write call writeStatus call finish',
    ],
    [
      'no further call when a write has changed nothing',
      {
        call: [returns({ status: { phase: 'Up' } })],
        writeStatus: [{ did: 'writeStatus', result: { object: widget(), isOld: false } }],
      },
      'observe call writeStatus finish',
    ],
    [
      'the stages of a plan, one after the other',
      { call: [returns({ apply: [POD, MAP] })] },
      'observe call write write call finish',
    ],
    [
      'owned objects, labels and annotations, the status, and the deletion of the object, each with a call before',
      {
        call: [returns({ apply: [MAP], metadata: { labels: { a: '1' } }, status: { phase: 'x' }, deleteObject: true })],
      },
      'observe call write call writeMetadata call writeStatus call delete finish',
      widgets({ writes: ['Metadata', 'Deletion'] }),
    ],
    [
      'a second look after an act on the object, whose change may be one that does not count',
      { observe: [sees(), sees(stored(widget()))], call: [SCALE, returns({})] },
      'observe call act observe call finish',
      scaled,
    ],
    [
      'the act again when the object has moved meanwhile',
      {
        observe: [sees(), sees(stored(widget())), sees(stored(widget()))],
        call: [SCALE, SCALE, returns({})],
        act: [MOVED, succeeds],
      },
      'observe call act observe call act observe call finish',
      scaled,
    ],
    ['the status of a paused object, and no call', { observe: [sees(paused)] }, 'observe writeStatus finish'],
    [
      'labels of an object whose status is another controller’s, and no status',
      { call: [returns({ metadata: { labels: { a: '1' } } })] },
      'observe call writeMetadata call finish',
      widgets({ for: theirs.spec.for, writes: ['Metadata'] }),
    ],
    ['the finalizer before the call', {}, 'observe writeFinalizers call finish', finalizing],
    [
      'the release of an object that goes, after the call',
      { observe: [sees(going([FINALIZER]))] },
      'observe call writeFinalizers finish',
      finalizing,
    ],
    [
      'no release while the function wants to run again',
      { observe: [sees(going([FINALIZER]))], call: [returns({ requeueAfterSeconds: 5 })] },
      'observe call finish',
      finalizing,
    ],
    [
      'no release while the function fails',
      { observe: [sees(going([FINALIZER]))], call: [fails(new Error('no'))] },
      'observe call finish',
      finalizing,
    ],
    [
      'nothing more for a former finalizer while the object lives: the former operator would add it again',
      { observe: [sees(widget({ metadata: { finalizers: [OLD, FINALIZER] } }))] },
      'observe call finish',
      widgets({ finalize: true, ...FORMER }),
    ],
    [
      'the call and the release of an object that goes and has only a former finalizer',
      { observe: [sees(going([OLD]))] },
      'observe call writeFinalizers finish',
      widgets({ finalize: true, ...FORMER }),
    ],
    [
      'no release of a former finalizer while the function wants to run again',
      { observe: [sees(going([OLD]))], call: [returns({ requeueAfterSeconds: 5 })] },
      'observe call finish',
      widgets({ finalize: true, ...FORMER }),
    ],
    [
      'the release of a former finalizer without a call if the function has nothing to clean up',
      { observe: [sees(going([OLD]))] },
      'observe writeFinalizers finish',
      widgets(FORMER),
    ],
    [
      'nothing for an object that goes outside of the selection with a former finalizer',
      { observe: [sees(going([OLD]))] },
      'observe finish',
      widgets({ for: labelled.spec.for, finalize: true, ...FORMER }),
    ],
    [
      'only the status of an object that goes with a former finalizer and is paused',
      { observe: [sees(widget({ metadata: { ...going([OLD, FINALIZER]).metadata, ...paused.metadata } }))] },
      'observe writeStatus finish',
      widgets({ finalize: true, ...FORMER }),
    ],
    [
      'nothing for an object that goes with the finalizer of somebody else',
      { observe: [sees(going(['example.com/else']))] },
      'observe finish',
      widgets({ finalize: true, ...FORMER }),
    ],
    [
      'no status of a paused object that is another controller’s',
      { observe: [sees(paused)] },
      'observe finish',
      theirs,
    ],
    [
      'the status of an object that is resumed',
      { observe: [sees(widget({ status: { conditions: [{ type: 'Paused', status: 'True', reason: 'x' }] } }))] },
      'observe call writeStatus call finish',
    ],
    [
      'another observation when the status was dropped',
      {
        call: [returns({ status: { phase: 'Up' } }), returns({})],
        writeStatus: [{ did: 'writeStatus', result: 'dropped' }],
        observe: [sees(), sees(widget(), child('Pod', 'p'))],
      },
      'observe call writeStatus observe call finish',
    ],
    [
      'a second look when there is a newer version than the one written',
      {
        observe: [sees(), sees(stored(widget()))],
        call: [returns({ status: { phase: 'Up' } }), returns({})],
        writeStatus: [old],
      },
      'observe call writeStatus observe call finish',
    ],
    [
      'a second look when the status names another namespace of related objects',
      {
        observe: [sees(), sees(widget({ status: { namespace: 'one' } }))],
        call: [returns({ status: { namespace: 'one' } }), returns({})],
      },
      'observe call writeStatus observe call finish',
      placed,
    ],
    [
      'a second look when its labels or annotations name other related objects',
      {
        observe: [sees(), sees(widget({ metadata: { labels: { pod: 'p' } } }))],
        call: [returns({ metadata: { labels: { pod: 'p' } } }), returns({})],
      },
      'observe call writeMetadata observe call finish',
      placed,
    ],
    [
      'no second look when the status names the same as before',
      { call: [returns({ status: { phase: 'Up' } })] },
      'observe call writeStatus call finish',
      placed,
    ],
    [
      'another pass when the driver knows of a change at the end',
      { finish: [{ did: 'finish', changed: true }], observe: [sees(), sees(widget(), child('Pod', 'p'))] },
      'observe call finish observe call finish',
    ],
    [
      'another pass, and no call, when that change is nothing that the function sees',
      { finish: [{ did: 'finish', changed: true }] },
      'observe call finish observe finish',
    ],
    [
      'another pass after a conflict',
      { call: [returns({ apply: [POD] })], write: [CONFLICT], observe: [sees(), sees(widget(), child('Pod', 'p'))] },
      'observe call write observe call finish',
    ],
    [
      'the report of a failure that its object shows',
      { call: [fails(new TerminalError('bad', { reason: 'Bad' }))] },
      'observe call writeStatus finish',
    ],
    [
      'another pass when the object moved while a failure was reported',
      { call: [fails(new TerminalError('bad')), returns({})], writeStatus: [CONFLICT] },
      'observe call writeStatus observe call finish',
    ],
    ['no report without an object', { observe: [fails(new Error('no'))] }, 'observe finish'],
    [
      'nothing more when the object is gone in the middle',
      { call: [returns({ apply: [POD] })], write: [fails(new GoneError('gone'))] },
      'observe call write finish',
    ],
  ])('%s', (_, script, asks, of) => {
    const steps = drive(script, of)

    expect(asksOf(steps)).toBe(asks)
  })
})

it('an object that goes loses former finalizers in the write that removes that of the function, and keeps the others', () => {
  const object = going(['example.com/else', OLD, FINALIZER])
  const steps = drive({ observe: [sees(object)] }, widgets({ finalize: true, ...FORMER }))
  const written = steps.flatMap(({ ask }) => (ask.do === 'writeFinalizers' ? [ask.finalizers] : []))
  expect(written).toEqual([['example.com/else']])
  expect(steps.flatMap(({ ask }) => (ask.do === 'call' ? [ask.input.finalizing] : []))).toEqual([true])
})

it.each([
  ['after finalize', true, [true]],
  ['without finalize', false, []],
])(
  'an object that goes outside of the selection loses only the finalizer of the function, %s: the former operator may have it again',
  (_, finalize, calls) => {
    const object = going([OLD, FINALIZER])
    const steps = drive({ observe: [sees(object)] }, widgets({ for: labelled.spec.for, finalize, ...FORMER }))
    expect(steps.flatMap(({ ask }) => (ask.do === 'writeFinalizers' ? [ask.finalizers] : []))).toEqual([[OLD]])
    expect(steps.flatMap(({ ask }) => (ask.do === 'call' ? [ask.input.finalizing] : []))).toEqual(calls)
  },
)

describe('a run ends', () => {
  it.each<[what: string, script: Script, end: object, attempt?: number]>([
    ['done', {}, { kind: 'done' }],
    ['in a timer that the function asks for', { call: [returns({ requeueAfterSeconds: 5 })] }, { kind: 'requeue' }],
    ['parked by a terminal error', { call: [fails(new TerminalError('bad'))] }, { kind: 'terminal', message: 'bad' }],
    [
      'parked by an outcome that is none',
      { call: [returns({ apply: 'all' })] },
      { kind: 'terminal', message: expect.stringContaining('apply') },
    ],
    [
      'parked by a condition whose status is none',
      { call: [returns({ conditions: [{ type: 'Ready', status: 'Maybe', reason: 'Asking' }] })] },
      {
        kind: 'terminal',
        message: expect.stringContaining('conditions.0.status: must be "True", "False" or "Unknown"'),
      },
    ],
    [
      'parked by a condition without a reason',
      { call: [returns({ conditions: [{ type: 'Ready', status: 'True' }] })] },
      { kind: 'terminal', message: expect.stringContaining('conditions.0.reason: ') },
    ],
    [
      'in a backoff that grows with the failures before',
      { call: [fails(new Error('no'))] },
      { kind: 'error', retryAt: { afterMs: 8000 } },
      3,
    ],
    [
      'when the API server wants to be asked again',
      { observe: [fails(new Error('busy'), { retryAfterSeconds: 7 })] },
      { kind: 'error', retryAt: { afterMs: 7000 } },
    ],
    [
      'with the failure to report one, where that fails too',
      { call: [fails(new TerminalError('bad'))], writeStatus: [fails(new Error('away'))] },
      { kind: 'error', message: 'away' },
    ],
    [
      'with all refusals of a stage',
      {
        call: [returns({ apply: [MAP, { ...MAP, metadata: { name: 'd' } }] })],
        write: [
          {
            did: 'write',
            results: ['a', 'b'].map((what) => ({ failed: new RefusedError(what, { reason: 'Forbidden' }) })),
          },
        ],
      },
      { kind: 'error', message: 'a; b' },
    ],
  ])('%s', (_, script, end, attempt = 0) => {
    expect(endOf(drive(script, widgets(), { attempt }))).toMatchObject(end)
  })

  describe('after a failure', () => {
    const at = (seconds: number) => new Date(Date.UTC(2030, 0, 1) + seconds * 1000)
    const refused: Script['write'] = [
      { did: 'write', results: [{ failed: new RefusedError('no', { reason: 'Forbidden' }) }] },
    ]
    const invalid = { apply: [{ ...MAP, kind: 'Stranger' }] }
    const failing = (failure: Failed): Script['write'] => [{ did: 'write', results: [failure] }]
    const of = widgets({ backoff: { initialSeconds: 1, maxSeconds: 1000, jitter: 0 } })
    const BACKOFF = { kind: 'error', retryAt: { afterMs: 512_000 } }
    const after = (seconds: number) => ({ kind: 'error', retryAt: { afterMs: seconds * 1000 } })
    const timed = (seconds: number) => ({ ...after(seconds), isTimer: true })
    const uncounted = (seconds: number) => ({ ...timed(seconds), isCounted: false })
    const applying = (requeue: object) => ({ apply: [MAP], ...requeue })
    it.each<[what: string, outcome: object, end: object, writes?: Script['write']]>([
      // A delay counts from the end of the run, so that there is a pause after a run of any length.
      ['at the time of the outcome', applying({ requeueAt: at(100).toISOString() }), timed(100)],
      ['after the seconds of the outcome', applying({ requeueAfterSeconds: 100 }), after(100)],
      ['with the backoff, if it is earlier', applying({ requeueAt: at(600).toISOString() }), BACKOFF],
      ['no sooner than after a minute', applying({ requeueAfterSeconds: 1 }), after(60)],
      ['after a minute, if the time has come already', applying({ requeueAt: at(-1).toISOString() }), after(60)],
      [
        'at the time of the outcome, if the API server fails',
        applying({ requeueAfterSeconds: 100 }),
        after(100),
        failing({ failed: new Error('500'), server: { isAway: false, retryAfterSeconds: undefined } }),
      ],
      [
        'after a minute, if the namespace of the object is being deleted',
        applying({ requeueAfterSeconds: 1 }),
        after(60),
        failing({ failed: new NamespaceTerminatingError('it goes') }),
      ],
      [
        'when the API server wants to be asked again',
        applying({ requeueAfterSeconds: 100 }),
        after(300),
        failing({ failed: new Error('429'), server: { isAway: false, retryAfterSeconds: 300 } }),
      ],
      [
        'at the time of an outcome that is not valid, and does not count',
        { ...invalid, requeueAt: at(500).toISOString() },
        uncounted(500),
      ],
      [
        'at the time of an outcome that is none, and does not count',
        { events: 'all', requeueAfterSeconds: 500 },
        uncounted(500),
      ],
      [
        'after a minute, if an outcome that is not valid asks for one sooner',
        { ...invalid, requeueAfterSeconds: 0 },
        uncounted(60),
      ],
      ['never, if an outcome that is not valid names no time', invalid, { kind: 'terminal' }],
    ])('%s', (_, outcome, end, write = refused) => {
      expect(endOf(drive({ call: [returns(outcome)], write }, of, { attempt: 9 }))).toMatchObject(end)
    })

    it.each([0, 3, 5])('with the backoff while it is less than a minute: after %i failures', (attempt) => {
      const call = [returns(applying({ requeueAfterSeconds: 0.001 }))]
      expect(endOf(drive({ call, write: refused }, of, { attempt }))).toMatchObject(after(2 ** attempt))
    })

    it('with the backoff, if the function throws when it is told of the refusal', () => {
      const call = [returns(applying({ requeueAfterSeconds: 100 })), fails(new Error('no'))]
      expect(endOf(drive({ call, write: refused }, of, { attempt: 9 }))).toMatchObject(BACKOFF)
    })
  })

  it('after five passes, however often the state moves', () => {
    const steps = drive({ call: [returns({ apply: [POD] })], write: [CONFLICT] })
    expect(asksOf(steps).match(/observe/g)).toHaveLength(5)
    expect(endOf(steps)).toMatchObject({ kind: 'error', message: 'moved' })
  })

  it('after the fifth pass also when the driver knows of another change', () => {
    const changed = { did: 'finish', changed: true } as const
    const steps = drive({ finish: [changed, changed, changed, changed, changed, changed] })
    expect(asksOf(steps).match(/observe/g)).toHaveLength(5)
  })

  it('after eight decisions on its own changes, and keeps the key for the time of its backoff', () => {
    let phase = 0
    const steps = drive({ call: [() => returns({ status: { phase: `${++phase}` } })] }, widgets(), { attempt: 1 })
    expect(asksOf(steps).match(/call/g)).toHaveLength(8)
    expect(steps.at(-2)?.ask).toEqual({ do: 'wait', ms: 2000 })
    expect(endOf(steps)).toMatchObject({ kind: 'error', message: expect.stringContaining('8 times in a row') })
  })
})

describe('a run shows the function what it has written, among the related objects too', () => {
  const [labels, ours] = [{ app: 'web' }, { ...MAP, metadata: { name: 'c', labels: { app: 'web' } } }]
  const theirs = { ...MAP, metadata: { name: 'theirs', namespace: 'default', labels, resourceVersion: '7' } }
  const there = stored({ ...ours, metadata: { ...ours.metadata, namespace: 'default' } })
  const MAPS = { group: '', version: 'v1', resource: 'configmaps', kind: 'ConfigMap' }
  const Web = { ...MAPS, selector: 'app=web' }
  const GADGETS = { ...MAPS, version: 'v2' }

  /** Returns the related objects of the last call: as they are in its other lists, as they were observed, or as written. */
  function lastCall(outcome: object, related: readonly KubeObject[], owned: readonly KubeObject[], more: object) {
    const seen = sees(widget(), ...owned)
    if (!('did' in seen) || seen.did !== 'observe' || seen.seen === undefined) throw new Error('sees nothing')
    const observed = { ...seen, seen: { ...seen.seen, world: { ...seen.seen.world, related } } }
    const steps = drive({ observe: [observed], call: [returns(outcome)] }, widgets(more))
    const input = steps.findLast(({ ask }) => ask.do === 'call')?.ask
    if (input?.do !== 'call') throw new Error('calls nothing')
    const { owned: mine, related: others, object } = input.input
    const isListed = (one: KubeObject) => one === object || mine['ConfigMap.v1']?.includes(one)
    const where = (one: KubeObject) =>
      isListed(one) ? 'as listed' : related.includes(one) ? 'as observed' : 'as written'
    return Object.values(others).flatMap((all) => all.map((one) => `${one.metadata.name} ${where(one)}`))
  }

  it.each<[what: string, outcome: object, shown: string[], owned: readonly KubeObject[], more?: object]>([
    ['a new object', { apply: [ours] }, ['theirs as observed', 'c as listed'], []],
    [
      'a changed object, in its place',
      { apply: [{ ...ours, data: { a: '2' } }] },
      ['c as listed', 'theirs as observed'],
      [there],
    ],
    ['nothing of a deleted one', { apply: [] }, ['theirs as observed'], [there]],
    ['nothing of one that is no longer related', { apply: [MAP] }, ['theirs as observed'], [there]],
    ['nothing of one that never was', { apply: [MAP] }, ['theirs as observed'], []],
    ['nothing of another version of the kind', { apply: [ours] }, ['theirs as observed'], [], { related: [GADGETS] }],
    [
      'the object itself',
      { status: { phase: 'Up' } },
      ['w as listed', 'theirs as observed'],
      [],
      { related: [WIDGETS] },
    ],
  ])('%s', (_, outcome, shown, owned, more = { related: [Web] }) => {
    expect(lastCall(outcome, [...owned, theirs], owned, more)).toEqual(shown)
  })
})

describe('a run tells', () => {
  const notesOf = (script: Script, of = widgets()) => drive(script, of).flatMap(({ notes }) => notes)

  it('an Event once, however often it is decided', () => {
    const event = { type: 'Normal', reason: 'Made', message: 'made' }
    const notes = notesOf({ call: [returns({ apply: [POD], status: { a: '1' }, events: [event] })] })
    expect(notes.filter(({ note }) => note === 'event')).toMatchObject([{ event }])
  })

  it('nothing that a Secret which it has seen contains', () => {
    const secret = { ...child('Secret', 's'), data: { password: 'aHVudGVyMjI=' } }
    const notes = notesOf({ observe: [sees(widget(), secret)], call: [fails(new TerminalError('hunter22 is weak'))] })
    expect(JSON.stringify(notes.map((note) => ('error' in note ? { ...note, error: '' } : note)))).not.toContain(
      'hunter22',
    )
  })

  it.each<[what: string, outcome: object]>([
    ['a status', { status: { phase: 'Up' } }],
    ['conditions', { conditions: [{ type: 'Up', status: 'True', reason: 'Up' }] }],
  ])('an Event alone of a function that returns %s of an object whose status is another controller’s', (_, outcome) => {
    const steps = drive({ call: [returns({ ...outcome, apply: [POD] })] }, theirs)
    expect(asksOf(steps)).toBe('observe call finish')
    expect(steps.flatMap(({ notes }) => notes).filter(({ note }) => note === 'event')).toMatchObject([
      { event: { reason: 'InvalidOutcome' } },
    ])
  })

  it('which writes need not be sent again', () => {
    const notes = notesOf({ call: [returns({ apply: [MAP] })] })
    expect(notes).toMatchObject([{ note: 'noOp', target: 'uid-c', value: expect.stringMatching(/^\d+ .{16}$/) }])
  })
})

it('an answer to another question is refused', () => {
  const asks = run(widgets(), { attempt: 0, random: 0, tell: () => undefined })
  asks.next()
  expect(() => asks.next({ did: 'wait' })).toThrow('answered wait to observe')
})

it('a run is its answers: the same ones lead to the same asks and notes', () => {
  const event = { type: 'Normal', reason: 'Made', message: 'made' }
  const steps = drive({
    call: [returns({ apply: [POD, MAP], status: { a: '1' }, events: [event] })],
    write: [CONFLICT, succeeds],
    finish: [{ did: 'finish', changed: true }],
  })
  const answers = steps.values()
  expect(stepsOf(() => answers.next().value!.answer)).toEqual(steps)
  expect(asksOf(steps)).toBe(
    'observe call write observe write write call writeStatus call finish observe call write write call writeStatus call finish',
  )
})

describe('a run that a terminal error ends', () => {
  const failing: Script = { call: [fails(new TerminalError('no Secret', { reason: 'NoSecret' }))] }
  const ready = (status: string) => [{ type: 'Ready', status, reason: 'Own', message: 'own' }]
  const conditionsAfter = (script: Script, conditions: unknown) => {
    const steps = drive({ observe: [sees(widget({ status: { conditions } }))], ...script })
    const writes = steps.flatMap(({ ask }) => (ask.do === 'writeStatus' ? [ask.patch.status] : []))
    expect(writes.length).toBeLessThanOrEqual(1)
    return writes.length === 0 ? conditions : (writes[0] as { conditions: unknown }).conditions
  }
  const readyIn = (conditions: unknown) =>
    (conditions as { type: string; status: string }[]).find(({ type }) => type === 'Ready')

  it.each([
    ['no Ready', [], 'terminal error: no Secret', undefined],
    ['a Ready that is True', ready('True'), 'terminal error (Ready was True before): no Secret', 'True'],
    ['a Ready that is False', ready('False'), 'terminal error (Ready was False before): no Secret', 'False'],
    ['a Ready that is Unknown', ready('Unknown'), 'terminal error (Ready was Unknown before): no Secret', 'Unknown'],
  ])('makes Ready False, with the reason, once; the next success gives back %s', (_, before, message, after) => {
    const failed = conditionsAfter(failing, before)
    expect(readyIn(failed)).toMatchObject({ status: 'False', reason: 'NoSecret', message })
    expect(conditionsAfter(failing, failed)).toBe(failed)
    const succeeded = conditionsAfter({ call: [returns({})] }, failed)
    expect(readyIn(succeeded)?.status).toBe(after)
  })

  it('leaves Ready to the function as soon as it returns the condition', () => {
    const failed = conditionsAfter(failing, ready('True'))
    const said = { type: 'Ready', status: 'Unknown', reason: 'Asking' }
    expect(readyIn(conditionsAfter({ call: [returns({ conditions: [said] })] }, failed))).toMatchObject(said)
  })

  it.each([
    ['True', 'False'],
    ['False', 'False'],
  ])('is over when a write is refused: a Ready that was %s before is %s', (before, after) => {
    const failed = conditionsAfter(failing, ready(before))
    const refusal = { failed: new RefusedError('not allowed', { reason: 'Forbidden' }) }
    const script: Script = { call: [returns({ apply: [POD] })], write: [{ did: 'write', results: [refusal] }] }
    const found = readyIn(conditionsAfter(script, failed))
    expect(found).toMatchObject({ status: after, message: before === 'True' ? 'a write was refused: not allowed' : '' })
  })

  it('does not make Ready False if the error may pass', () => {
    const passing: Script = { call: [fails(new RetryAfterError('later', { afterSeconds: 9, reason: 'Later' }))] }
    expect(readyIn(conditionsAfter(passing, ready('True')))).toMatchObject({ status: 'True', reason: 'Own' })
  })
})
