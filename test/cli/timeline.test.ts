import { Writable } from 'node:stream'
import { expect, it } from 'vitest'
import type { KubeObject } from '#contracts'
import { plain, type Recorder, recordLifeOf, timelineOn } from '../../cli/commands/demo-timeline.ts'

const ABOUT = { reconciler: 'at', key: 'default.x' }
const STARTED = {
  ...ABOUT,
  step: 'started',
  attempt: 1,
  fired: false,
  queuedMs: 0,
  leaseUntil: new Date(9000),
} as const
const PODS = { group: '', version: 'v1', resource: 'pods' }

const pod = (resourceVersion: string): KubeObject => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: {
    name: 'x-pod',
    namespace: 'default',
    resourceVersion,
    ownerReferences: [{ apiVersion: 'v1', kind: 'At', name: 'x', uid: 'u', controller: true }],
  },
})

function began(now: () => number) {
  const lines: string[] = []
  const out = new Writable({ write: (chunk, _encoding, done) => (lines.push(String(chunk)), done()) })
  const timeline = timelineOn(out, plain, now)
  const recorder = recordLifeOf({ namespace: 'default', name: 'x' }, (told) => timeline.add(told), now)
  timeline.begin()
  const shown = () => lines.slice(1).map((line) => line.trim().replaceAll(/ {2,}/g, ' | '))
  return { timeline, recorder, shown }
}

/** Returns the timeline of the reported moments. The clock begins at 1000 ms and is advanced by hand. */
function shown(act: (told: Recorder, at: (ms: number) => void) => void): string[] {
  let clock = 1000
  const { timeline, recorder, shown } = began(() => clock)
  act(recorder, (ms) => {
    clock = 1000 + ms
  })
  timeline.end()
  return shown()
}

const change = (object: KubeObject, verb: 'added' | 'modified') => ({ ref: PODS, verb, object })
const queued = { reconciler: 'at', key: ABOUT.key, lane: 'high', by: 'record' } as const

it('shows a key as queued before its run, though it is told of after it', () => {
  const lines = shown(({ bridge, run }, at) => {
    bridge.seen?.(change(pod('1'), 'modified'))
    at(3)
    run(STARTED)
    at(4)
    bridge.enqueued?.({ ...queued, object: pod('1') })
  })
  expect(lines).toEqual([
    '0.000 s | event seen | Pod x-pod modified',
    '0.003 s | +3.0 ms | key queued | at default/x: a record in JetStream, run at once: a slot is free',
    '0.003 s | +0.0 ms | run started | the function decides on the state in EVENTS',
  ])
})

it('shows what was written before the event that it made, though its answer comes later', () => {
  const lines = shown(({ bridge, run }, at) => {
    bridge.enqueued?.(queued)
    run(STARTED)
    at(10)
    bridge.seen?.(change(pod('1'), 'added'))
    at(12)
    const request = { resource: 'pods.v1', kind: 'Pod', namespace: 'default', name: 'x-pod' }
    run({ ...ABOUT, ...request, step: 'written', verb: 'create', resourceVersion: '1', ms: 8 })
  })
  expect(lines.slice(2)).toEqual([
    '0.004 s | +4.0 ms | pod created | x-pod: asked for, answered 8.0 ms later',
    '0.010 s | +6.0 ms | event seen | Pod x-pod added',
  ])
})

it('counts a fired timer from the moment it was armed, and the run from when it fired', () => {
  const lines = shown(({ run }, at) => {
    run({ ...ABOUT, step: 'armed', at: new Date(6000), why: 'requeue' })
    at(5010)
    run({ ...STARTED, key: 'default.other', fired: true })
    run({ ...STARTED, fired: true, queuedMs: 4 })
  })
  expect(lines.slice(1)).toEqual([
    '5.006 s | +5006 ms | timer fired | 6 ms after it was due',
    '5.010 s | +4.0 ms | run started | the function decides on the state in EVENTS',
  ])
})

it('counts a change that a run under way was told of for no other run', () => {
  const lines = shown(({ bridge, run }, at) => {
    bridge.enqueued?.({ ...queued, by: 'run' })
    bridge.enqueued?.(queued)
    at(5)
    run(STARTED)
  })
  expect(lines.at(-1)).toBe('0.005 s | +5.0 ms | run started | the function decides on the state in EVENTS')
})

it('says of what nobody has told the cause just that it happened', () => {
  const lines = shown(({ bridge }) => bridge.seen?.(change(pod('1'), 'added')))
  expect(lines).toEqual(['0.000 s | event seen | Pod x-pod added'])
})

it('waits at its end for the cause of what it shows', async () => {
  const { timeline, recorder, shown } = began(() => 1000)
  recorder.bridge.enqueued?.(queued)
  recorder.run(STARTED)
  recorder.bridge.seen?.(change(pod('1'), 'added'))
  const explained = timeline.explained().then(shown)
  const request = { resource: 'pods.v1', kind: 'Pod', namespace: 'default', name: 'x-pod' }
  recorder.run({ ...ABOUT, ...request, step: 'written', verb: 'create', resourceVersion: '1', ms: 0 })
  expect(await explained).toEqual([])
  timeline.end()
  expect(shown().at(-1)).toBe('0.000 s | +0.0 ms | event seen | Pod x-pod added')
})

it('continues a detail below its column on a narrow terminal', () => {
  let screen = ''
  const write = (chunk: Buffer, _encoding: unknown, done: () => void) => ((screen += String(chunk)), done())
  const out = Object.assign(new Writable({ write }), { columns: 61 })
  const timeline = timelineOn(out, plain, () => 1000)
  timeline.begin()
  timeline.add({ at: 1000, what: 'timer armed', detail: 'for 2026-11-24T15:48:35Z, in JetStream' })
  timeline.end()
  const [line, ...below] = screen.trimEnd().split('\n').slice(2)
  expect(line).toBe(`${'0.000 s'.padStart(11)}${' '.repeat(15)}timer armed    for`)
  expect(below).toEqual(['2026-11-24T15:48:35Z,', 'in JetStream'].map((text) => ' '.repeat(41) + text))
})
