import { describe, expect, it } from 'vitest'
import { EventCorrelator } from '../../dispatch/apply/event-recorder.ts'
import { widget } from './objects.ts'

const MINUTE = 60_000
const start = 1_000 * MINUTE

/** Returns the Events for messages of one kind, by default a millisecond apart. */
function told(messages: string[], everyMs = 1, correlator = new EventCorrelator()) {
  return messages.map((message, index) =>
    correlator.correlate('at', widget(), { type: 'Warning', reason: 'Failed', message }, start + index * everyMs),
  )
}
const times = (count: number, message = 'no') => Array.from({ length: count }, () => message)
const different = (count: number) => Array.from({ length: count }, (_, index) => `no ${index}`)
const said = (all: ReturnType<typeof told>) => all.map(({ say }) => say)

describe('a report that is repeated', () => {
  it('is one Event, whose count is shown again after five minutes', () => {
    const all = told(times(7), MINUTE)
    expect(said(all)).toEqual(['new', ...times(4, 'nothing'), 'again', 'nothing'])
    expect(all.map(({ count }) => count)).toEqual([1, 2, 3, 4, 5, 6, 7])
    expect(new Set(all.map(({ name }) => name)).size).toBe(1)
  })

  it('is news again when the API server has forgotten the Event', () => {
    expect(said(told(times(2), 61 * MINUTE))).toEqual(['new', 'new'])
  })

  it('has the same name in every process', () => {
    expect(told(['no'])[0]!.name).toBe(told(['no'])[0]!.name)
    expect(told(['no'])[0]!.name).not.toBe(told(['yes'])[0]!.name)
  })
})

describe('reports that differ in the message only', () => {
  it('are one from the eleventh on', () => {
    const all = told(different(13))
    expect(all.slice(0, 10).every(({ say }) => say === 'new')).toBe(true)
    expect(all[10]).toMatchObject({ say: 'new', note: '(combined from similar events): no 10' })
    expect(said(all.slice(11))).toEqual(['nothing', 'nothing'])
    expect(new Set(all.slice(10).map(({ name }) => name)).size).toBe(1)
    expect(all.at(-1)!.count).toBe(3)
  })

  it('are told apart again after ten quiet minutes', () => {
    const correlator = new EventCorrelator()
    told(different(13), 1, correlator)
    const later = correlator.correlate(
      'at',
      widget(),
      { type: 'Warning', reason: 'Failed', message: 'other' },
      start + 11 * MINUTE,
    )
    expect(later).toMatchObject({ say: 'new', note: 'other' })
  })
})

describe('one object', () => {
  it('is talked of 25 times at once, then once in five minutes; others are not affected', () => {
    const correlator = new EventCorrelator()
    const report = (index: number, now: number, name = 'w') =>
      correlator.correlate(
        'at',
        widget({ metadata: { name, uid: name } }),
        { type: 'Normal', reason: `R${index}`, message: '' },
        now,
      ).say
    const burst = Array.from({ length: 40 }, (_, index) => report(index, start))
    expect(burst.filter((say) => say === 'new')).toHaveLength(25)
    expect(report(100, start, 'other')).toBe('new')
    expect([report(50, start + 5 * MINUTE), report(51, start + 5 * MINUTE)]).toEqual(['new', 'nothing'])
  })

  it('of which something was held back tells it when it may', () => {
    const correlator = new EventCorrelator()
    const report = (reason: string, now: number) =>
      correlator.correlate('at', widget(), { type: 'Normal', reason, message: '' }, now).say
    for (let index = 0; index < 25; index++) report(`R${index}`, start)
    expect(report('Late', start)).toBe('nothing')
    expect(report('Late', start + 5 * MINUTE)).toBe('new')
  })
})
