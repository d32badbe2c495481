import { describe, expect, it } from 'vitest'
import { Names } from '../../streams/queue/wire.ts'
import type { Note } from './diary.ts'
import { addStored, leftOver, noHistory, type Stored } from './judge/history.ts'
import { grewIn, type Remains, remainsOf } from './judge/leaks.ts'
import { type Fault, recoveries } from './judge/recovery.ts'
import { addNote, lostEnqueues, noDiaries, overlaps, runsByKey } from './judge/runs.ts'
import { armedTooEarly, undisturbed } from './judge/timers.ts'
import { soakOptions } from './options.ts'
import { reportOf } from './report.ts'

function diariesOf(...notes: Note[]) {
  const diaries = noDiaries()
  for (const note of notes) addNote(diaries, note)
  return diaries
}

const start = (run: string, at: number, pid = 1): Note => ({
  note: 'start',
  key: 'n.a',
  run,
  owner: run,
  at,
  pid,
})
const held = (run: string, at: number): Note => ({ note: 'held', run, at })
const ended = (run: string, at: number, holds = true): Note => ({
  note: 'end',
  run,
  at,
  held: holds,
  outcome: 'done',
})
const enqueued = (from: number): Note => ({ note: 'enqueued', key: 'n.a', lane: 'high', from, at: from + 1 })

const overlapsIn = (...notes: Note[]) => overlaps(runsByKey(diariesOf(...notes)))
function lostIn(...notes: Note[]) {
  const diaries = diariesOf(...notes)
  return lostEnqueues(diaries.enqueued, runsByKey(diaries))
}

describe('runs', () => {
  const first = [start('A', 10), held('A', 10), ended('A', 20)]

  it('one after the other are no overlap', () => {
    expect(overlapsIn(...first, start('B', 21), held('B', 21), ended('B', 30))).toEqual([])
  })

  it('of which both had their lease at a time overlap', () => {
    expect(overlapsIn(...first, start('B', 15), held('B', 15), ended('B', 30))).toHaveLength(1)
  })

  it('of which the first stalled, and was refused when it woke up, do not overlap', () => {
    const stalled = [start('A', 10), held('A', 10), ended('A', 5000, false)]
    expect(overlapsIn(...stalled, start('B', 2000), held('B', 2000), ended('B', 2010))).toEqual([])
  })

  it('of which the first was given its lease again overlap', () => {
    const stalled = [start('A', 10), held('A', 10), held('A', 5000)]
    expect(overlapsIn(...stalled, start('B', 2000), held('B', 2000), ended('B', 2010))).toHaveLength(1)
  })

  it('of other keys are of no concern', () => {
    const other: Note = { note: 'start', key: 'n.b', run: 'B', owner: 'B', at: 15, pid: 1 }
    expect(overlapsIn(...first, other, held('B', 15), ended('B', 30))).toEqual([])
  })
})

describe('an enqueue', () => {
  it('is not lost when a run began after it and ended', () => {
    expect(lostIn(enqueued(5), start('A', 10), held('A', 10), ended('A', 20))).toEqual([])
  })

  it('is lost when the last run had begun before it', () => {
    expect(lostIn(start('A', 4), held('A', 4), enqueued(5), ended('A', 20))).toHaveLength(1)
  })

  it('is lost when the run after it was killed, lost its lease, or could not store its end', () => {
    expect(lostIn(enqueued(5), start('A', 10), held('A', 10))).toHaveLength(1)
    expect(lostIn(enqueued(5), start('A', 10), held('A', 10), ended('A', 20, false))).toHaveLength(1)
    const fenced: Note = { note: 'stored', run: 'A', at: 21, result: 'fenced' }
    expect(lostIn(enqueued(5), start('A', 10), held('A', 10), ended('A', 20), fenced)).toHaveLength(1)
  })
})

type Message = Partial<Stored> & { subject: string }
const historyOf = (...messages: Message[]) => told(messages, false)
const historyOf3 = (...messages: Message[]) => told(messages, true)

/** Records messages in order; each has the next sequence, unless it names another one. */
function told(messages: Message[], replicated: boolean) {
  const history = noHistory(new Names('p'), { replicated })
  for (const message of messages)
    addStored(history, { sequence: history.lastSequence + 1, at: 0, headers: {}, ...message })
  return history
}

const recordSubject = (generation: string) => new Names('p').record('f', 'n.a', generation)
const token = { subject: 'p.work.f.high.n.a' }
const done = (ends: string) => ({ subject: 'p.done.f.w', headers: ending(ends) })
const ending = (generation: string) => ({ 'Nats-Scheduler': recordSubject(generation), 'Nats-Schedule-Next': 'purge' })
const record = (generation: string, due: number, ends?: string, state = 'running') => ({
  subject: recordSubject(generation),
  headers: {
    'Fairlead-State': state,
    'Fairlead-Owner': 'A',
    'Nats-Schedule': `@at ${new Date(due).toISOString()}`,
    'Nats-Schedule-Target': token.subject,
    ...(ends && ending(ends)),
  },
})
const probe = new Names('p').probe('f', 'n1')
const probed: Message[] = [
  { subject: probe.schedule, headers: { 'Nats-Schedule': '@at 1970-01-01T00:00:00Z' } },
  { subject: probe.fired, headers: { 'Nats-Scheduler': probe.schedule, 'Nats-Schedule-Next': 'purge' } },
]
const fire = (generation: string, at: number, state = 'waiting') => ({
  ...token,
  at,
  headers: { 'Fairlead-State': state, ...ending(generation) },
})

describe('a history', () => {
  it('of a run, its renewal and its end is right', () => {
    const history = historyOf(token, record('r-1', 100), record('r-2', 200, 'r-1'), done('r-2'))
    expect([...history.wrong, ...leftOver(history)]).toEqual([])
    expect(history.counts).toMatchObject({ messages: 4, tokens: 1, records: 2, releases: 1 })
  })

  it('of a probe, which no key has, is right', () => {
    const history = historyOf(...probed)
    expect([...history.wrong, ...leftOver(history)]).toEqual([])
    expect(history.counts).toMatchObject({ messages: 2, probes: 2, records: 0, releases: 0 })
  })

  it('of a timer and of a lease that ran out is right, and tells how late they were', () => {
    const waiting = record('w-0', 100, 'r-1', 'waiting')
    const history = historyOf(
      record('r-1', 50),
      waiting,
      fire('w-0', 130),
      record('r-2', 300),
      fire('r-2', 300, 'running'),
      record('r-3', 400),
      done('r-3'),
    )
    expect([...history.wrong, ...leftOver(history)]).toEqual([])
    expect(history.lateness).toEqual([{ due: 100, ms: 30 }])
    expect(history.counts).toMatchObject({ fires: 1, watchdogs: 1 })
  })

  it('shows a timer that fires early, twice, or never', () => {
    const waiting = record('w-0', 100, undefined, 'waiting')
    expect(historyOf(waiting, fire('w-0', 99)).wrong).toEqual([expect.stringContaining('1 ms early')])
    expect(historyOf(waiting, fire('w-0', 100), fire('w-0', 101)).wrong).toEqual([expect.stringContaining('once more')])
    expect(leftOver(historyOf(waiting))).toEqual([expect.stringContaining('neither fired nor was ended')])
  })

  it('may have a fire cross a write, and on three replicas a write a fire, but none fire twice', () => {
    const waiting = record('w-0', 100, undefined, 'waiting')
    const stolen = record('r-0', 500, 'w-0')
    expect(historyOf(waiting, stolen, fire('w-0', 100))).toMatchObject({ wrong: [], crossed: 1 })
    expect(historyOf(waiting, fire('w-0', 100), stolen).wrong).toHaveLength(1)
    expect(historyOf3(waiting, fire('w-0', 100), stolen)).toMatchObject({ wrong: [], crossed: 1 })
    expect(historyOf3(waiting, stolen, fire('w-0', 100))).toMatchObject({ wrong: [], crossed: 1 })
    expect(historyOf3(waiting, fire('w-0', 100), fire('w-0', 101)).wrong).toHaveLength(1)
  })

  it('shows two records of one key, and the end of one that did not stand', () => {
    expect(historyOf(record('r-1', 100), record('r-2', 100)).wrong).toEqual([expect.stringContaining('two records')])
    expect(historyOf(record('r-1', 100), done('r-1'), done('r-1')).wrong).toEqual([
      expect.stringContaining('once more'),
    ])
    expect(historyOf(token, done('r-1')).wrong).toEqual([expect.stringContaining('did not stand')])
  })

  it('shows a sequence that was given to two messages', () => {
    expect(historyOf(token, { ...token, sequence: 1 }).wrong).toEqual([expect.stringContaining('given twice')])
  })

  it('is not held against what may have been in a gap', () => {
    const history = historyOf(record('r-1', 100), { ...record('r-3', 300, 'r-2'), sequence: 5 }, done('r-3'))
    expect([...history.wrong, ...leftOver(history)]).toEqual([])
    expect(history.missed).toBe(3)
    expect(leftOver(historyOf(record('r-1', 100), { ...done('w-9'), sequence: 9 }))).toEqual([])
  })
})

describe('a token', () => {
  const queued = { ...token, headers: { 'Nats-Last-Sequence': '0' } }
  const running = record('r-1', 100)

  it('may go after a record was stored for it, or be replaced', () => {
    expect(historyOf(queued, running, done('r-1'), queued).wrong).toEqual([])
    expect(historyOf(queued, { ...token, headers: { 'Nats-Last-Sequence': '1' } }).wrong).toEqual([])
    expect(leftOver(historyOf(queued, running, done('r-1')))).toEqual([])
  })

  it('that is gone without a record is lost, whether or not the key is queued again', () => {
    expect(historyOf(queued, queued).wrong).toEqual([expect.stringContaining('(1) was gone by 2')])
    expect(historyOf(running, queued, done('r-1'), queued).wrong).toEqual([
      expect.stringContaining('(2) was gone by 4'),
    ])
    expect(leftOver(historyOf(running, queued, done('r-1')))).toEqual([expect.stringContaining('gone by the end')])
  })

  it('is not missed where the record may be in a gap', () => {
    const history = historyOf(queued, { ...queued, sequence: 3 }, { ...running, sequence: 5 }, done('r-1'))
    expect([...history.wrong, ...leftOver(history)]).toEqual([])
  })
})

describe('timers', () => {
  const run: Note[] = [start('A', 10), { note: 'end', run: 'A', at: 20, held: true, outcome: 'requeue', dueInMs: 500 }]
  const armedAt = (due: number) =>
    armedTooEarly(
      diariesOf(...run).runs.values(),
      historyOf(record('w-0', due, undefined, 'waiting')),
      (monotonic) => monotonic + 1000,
      100,
    )

  it('may be armed within the error of the clocks, not earlier', () => {
    expect(armedAt(1520)).toEqual([])
    expect(armedAt(1421)).toEqual([])
    expect(armedAt(1419)).toHaveLength(1)
  })

  it('are those of the last run that an owner made', () => {
    const again: Note = { note: 'start', key: 'n.a', run: 'A2', owner: 'A', at: 21, pid: 1 }
    const short: Note = { note: 'end', run: 'A2', at: 30, held: true, outcome: 'requeue', dueInMs: 50 }
    const { runs } = diariesOf(...run, again, short)
    const history = historyOf(record('w-0', 1080, undefined, 'waiting'))
    expect(armedTooEarly(runs.values(), history, (monotonic) => monotonic + 1000, 0)).toEqual([])
  })

  it('are late by themselves only while the server is well', () => {
    const lateness = [
      { due: 100, ms: 5 },
      { due: 5000, ms: 700 },
      { due: 9000, ms: 3 },
    ]
    expect(undisturbed(lateness, [{ from: 4000, to: 4500 }], 600)).toEqual([3, 5])
  })
})

describe('an idle queue', () => {
  const consumer = { name: 'f-high', pending: 0, unacknowledged: 0, waitingPulls: 0 }
  const idle: Remains = {
    subjects: ['p.done.f.w'],
    messages: 1,
    consumers: [consumer],
    expectedConsumers: 1,
    workerLives: 2,
  }

  it('holds at most the last release of each worker', () => {
    expect(remainsOf(idle)).toEqual([])
    expect(remainsOf({ ...idle, workerLives: 0 })).toHaveLength(1)
    expect(remainsOf({ ...idle, subjects: ['p.done.f.w', probe.fired], messages: 2, workerLives: 1 })).toEqual([])
  })

  it('has no token, record, message in flight, pull request or consumer left', () => {
    expect(remainsOf({ ...idle, subjects: [recordSubject('r-1')] })).toHaveLength(1)
    expect(remainsOf({ ...idle, consumers: [{ ...consumer, unacknowledged: 1 }] })).toHaveLength(1)
    expect(remainsOf({ ...idle, consumers: [{ ...consumer, waitingPulls: 1 }] })).toHaveLength(1)
    expect(remainsOf({ ...idle, consumers: [consumer, { ...consumer, name: 'x' }] })).toHaveLength(1)
  })

  it('has processes that do not grow', () => {
    const steady = Array.from({ length: 100 }, (_, i) => 20 + (i % 7))
    const process = { name: 'w', pid: 1, resident: [] }
    expect(grewIn({ ...process, heap: steady })).toBe(undefined)
    expect(grewIn({ ...process, heap: steady.map((size, i) => size + i / 2) })).toContain('grew')
  })
})

it('the recovery of a killed worker is counted from the kill until its keys run again', () => {
  const kill: Fault = { kind: 'worker killed', target: 'w-0', pid: 1, at: 15, over: 16, ofServer: false, ended: true }
  const crash: Fault = { kind: 'server killed', target: 's', pid: 9, at: 15, over: 40, ofServer: true, ended: true }
  const runs = [start('A', 10), start('B', 55, 2), ended('B', 60)]
  expect(recoveries([kill, crash], runsByKey(diariesOf(...runs)))).toEqual([
    { kind: 'worker killed', times: 1, runs: 1, backMs: [40] },
    { kind: 'server killed', times: 1, runs: 0, backMs: [15], silentMs: [40] },
  ])
})

it('the report says what was wrong, where to look, and what could not be done', () => {
  const about = { seed: 7, replicas: 1 as const, seconds: 60, interrupted: true, notHad: ['slow disk: no strace'] }
  const clean = { wrong: [], recovered: [], figures: {} }
  expect(reportOf(clean, { ...about, evidence: undefined })).toMatch(
    /seed 7, 60 s \(interrupted\)[^]*no strace[^]*Clean/,
  )
  const wrong = Array.from({ length: 25 }, (_, i) => `key ${i} was lost`)
  expect(reportOf({ ...clean, wrong }, { ...about, evidence: '/evidence' })).toMatch(
    /25 VIOLATION[^]*key 19[^]*and 5 more\nEverything is kept in \/evidence/,
  )
})

it('the command refuses what it does not understand', () => {
  expect(soakOptions(['--minutes', '10', '--replicas', '3', '--seed', '5'])).toEqual({
    help: false,
    minutes: 10,
    replicas: 3,
    seed: 5,
  })
  for (const args of [['--minutes', '-1'], ['--replicas', '2'], ['--seed', 'x'], ['--what'], ['--wait-minutes', 'x']])
    expect(() => soakOptions(args)).toThrow(/--|-1/)
})
