import { describe, expect, it } from 'vitest'
import { ApiError } from '#kube'
import {
  classify,
  type Failure,
  type FailureKind,
  type Input,
  isStarting,
  type Relist,
  type State,
  step,
} from '../../bridge/watch-state.ts'

const listing = (because: Relist = 'initial', attempt = 0, stream = true): State => ({
  phase: 'listing',
  because,
  attempt,
  stream,
})
const watching = (resourceVersion = '100', attempt = 0): State => ({ phase: 'watching', resourceVersion, attempt })
const failed = (kind: FailureKind, more: Partial<Input & { type: 'failed' }> & Partial<Failure> = {}): Input => ({
  type: 'failed',
  failure: { kind, message: kind, ...(more.retryAfterMs !== undefined && { retryAfterMs: more.retryAfterMs }) },
  openMs: more.openMs ?? 0,
  ...(more.resourceVersion !== undefined && { resourceVersion: more.resourceVersion }),
})
const after = (state: State, input: Input, random = 0) => step(state, input, random)

describe('a watch begins', () => {
  it.each<[string, Input, State]>([
    ['at once from its cursor', { type: 'resumed', resourceVersion: '7', relist: undefined }, watching('7')],
    ['with a list without one', { type: 'resumed', resourceVersion: undefined, relist: undefined }, listing()],
    [
      'with a list where the cursor does not cover a Reconciler',
      { type: 'resumed', resourceVersion: '7', relist: 'routes' },
      listing('routes'),
    ],
    [
      'at once where NATS may have lost messages, with a list beside it',
      { type: 'resumed', resourceVersion: '7', relist: 'store-restarted', mayWatch: true },
      { ...watching('7'), lists: 'store-restarted' } as State,
    ],
  ])('%s', (_name, input, next) => {
    expect(after({ phase: 'starting', attempt: 0 }, input)).toEqual(next)
  })

  it('without a list beside it, if it was interrupted', () => {
    const beside = after(watching('7'), { type: 'demanded', because: 'store-restarted', mayWatch: true })
    expect(beside).toEqual({ ...watching('7'), lists: 'store-restarted' })
    expect(after(beside, { type: 'ended', resourceVersion: '9', events: 1, openMs: 20 })).toEqual(watching('9'))
  })

  it('where its list ended', () => {
    expect(after(listing(), { type: 'listed', resourceVersion: '42' })).toEqual(watching('42'))
  })

  it('later, when the cursor could not be read: never as if there were none', () => {
    const next = after({ phase: 'starting', attempt: 0 }, failed('other'))
    expect(next).toMatchObject({ phase: 'waiting', next: { phase: 'starting' } })
  })
})

describe('a watch that ends as agreed', () => {
  it('goes on at once after the newest version it gave', () => {
    expect(after(watching('100'), { type: 'ended', resourceVersion: '180', events: 3, openMs: 290_000 })).toEqual(
      watching('180'),
    )
  })

  it('is no hot loop when it ends within a second, without an event', () => {
    const next = after(watching('100'), { type: 'ended', resourceVersion: '100', events: 0, openMs: 20 })
    expect(next).toMatchObject({ phase: 'waiting', ms: 800, next: { phase: 'watching', resourceVersion: '100' } })
  })

  it('waits longer each time it ends so', () => {
    let state = watching()
    const waits: number[] = []
    for (let i = 0; i < 7; i++) {
      state = after(state, { type: 'ended', resourceVersion: '100', events: 0, openMs: 20 })
      if (state.phase === 'waiting') waits.push(state.ms)
      state = after(state, { type: 'waited' })
    }
    expect(waits).toEqual([800, 1600, 3200, 6400, 12_800, 25_600, 30_000])
  })
})

describe('a watch that fails', () => {
  it.each<[string, FailureKind, State['phase'], string]>([
    ['asks for patience: the same watch, later', 'busy', 'watching', '130'],
    ['cannot be reached: the same watch, later', 'unreachable', 'watching', '130'],
    ['has an inner error: the same watch, later', 'other', 'watching', '130'],
    ['is not allowed: the same watch, later', 'forbidden', 'watching', '130'],
    ['has no such resource: the same watch, later', 'absent', 'watching', '130'],
  ])('because the server %s, without a list', (_name, kind, phase, resourceVersion) => {
    const next = after(watching('100'), failed(kind, { resourceVersion: '130' }))
    expect(next).toMatchObject({ phase: 'waiting', failure: { kind }, next: { phase, resourceVersion, attempt: 1 } })
  })

  it('because the history is gone lists at once, as a stream', () => {
    expect(after(watching('100'), failed('expired'))).toEqual(listing('expired', 1))
  })

  it('because the history is gone, again and again, does not list in a hot loop', () => {
    const next = after(after(listing('expired', 1), { type: 'listed', resourceVersion: '5' }), failed('expired'))
    expect(next).toMatchObject({ phase: 'waiting', next: { phase: 'listing', attempt: 2 } })
  })

  it('because the request is refused lists, later', () => {
    expect(after(watching('100'), failed('rejected'))).toMatchObject({ phase: 'waiting', next: { phase: 'listing' } })
  })

  it('waits at least as long as the server asks', () => {
    expect(after(watching(), failed('busy', { retryAfterMs: 5000 }), 0.99)).toMatchObject({
      phase: 'waiting',
      ms: 5000,
    })
  })

  it('counts anew after a healthy period', () => {
    expect(after(watching('100', 9), failed('unreachable', { openMs: 60_000 }))).toMatchObject({ ms: 800 })
    expect(after(watching('100', 9), { type: 'ended', resourceVersion: '1', events: 0, openMs: 60_000 })).toEqual(
      watching('1'),
    )
  })

  it('spreads the waits of many watches', () => {
    expect(after(watching(), failed('unreachable'), 0.5)).toMatchObject({ ms: 1200 })
  })

  it('looks more often for what somebody may be about to install, or to start', () => {
    expect(after(watching('100', 9), failed('absent'))).toMatchObject({ ms: 5000 })
    expect(after(watching('100', 9), failed('unreachable'))).toMatchObject({ ms: 10_000 })
  })

  describe('until the server is there again, which has forgotten the history:', () => {
    const away = (): State => {
      let state = watching('100')
      for (let i = 0; i < 9; i++) state = after(after(state, failed('unreachable')), { type: 'waited' })
      return state
    }

    it('lists at once', () => {
      expect(after(away(), failed('expired'))).toEqual(listing('expired', 1))
    })

    it.each<FailureKind>(['busy', 'other'])(
      'is %s for a moment, and is asked again as if it had just begun',
      (kind) => {
        const asked = after(after(away(), failed(kind)), { type: 'waited' })
        expect(asked).toEqual(watching('100', 1))
        expect(after(asked, failed('expired'))).toMatchObject({ phase: 'waiting', ms: 1600 })
      },
    )

    it('has listed, and whatever fails next is the first', () => {
      const lists: State = { phase: 'listing', because: 'initial', attempt: 9, stream: false, unanswered: true }
      expect(after(lists, { type: 'listed', resourceVersion: '5' })).toEqual(watching('5'))
    })

    it('and whoever lists then in vain waits longer each time', () => {
      const listed = after(after(away(), failed('expired')), { type: 'listed', resourceVersion: '5' })
      expect(after(listed, failed('expired'))).toMatchObject({ phase: 'waiting', ms: 1600, next: { attempt: 2 } })
    })
  })
})

describe('a list', () => {
  it.each<FailureKind>(['busy', 'unreachable', 'other', 'forbidden', 'absent', 'rejected'])(
    'that is %s is repeated later in pages, for the same reason',
    (kind) => {
      expect(after(listing('expired'), failed(kind))).toMatchObject({
        phase: 'waiting',
        next: listing('expired', 1, false),
      })
    },
  )

  it('whose pages expired is begun again at once, the first time', () => {
    expect(after(listing('initial'), failed('expired'))).toEqual(listing('initial', 1, false))
    expect(after(listing('initial', 1), failed('expired'))).toMatchObject({ phase: 'waiting' })
  })

  it.each<[string, State]>([
    ['a watch', watching()],
    [
      'a wait',
      {
        phase: 'waiting',
        ms: 5,
        failure: { kind: 'other', message: '' },
        next: { phase: 'watching', resourceVersion: '1', attempt: 3 },
      },
    ],
  ])('can be demanded during %s', (_name, state) => {
    expect(after(state, { type: 'demanded', because: 'store-restarted' })).toEqual(listing('store-restarted'))
  })

  it('begins again at its cursor when what it published may be lost', () => {
    expect(after(watching(), { type: 'recheck' })).toEqual({ phase: 'starting', attempt: 0 })
  })
})

const refusal = (message: string) =>
  classify(new ApiError('watch', { apiVersion: 'v1', kind: 'Status', code: 429, reason: 'TooManyRequests', message }))

it('tells a resource whose storage only starts from one that goes on refusing, and from a busy server', () => {
  const starting = refusal('storage is (re)initializing')
  expect([1, 2, 3].map((attempt) => isStarting(starting, attempt))).toEqual([true, true, false])
  expect(isStarting(refusal('too many requests'), 1)).toBe(false)
})
