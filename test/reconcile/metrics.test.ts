import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { functionMetrics } from '../../cli/process/function-metrics.ts'
import { drive, returns, type Step, widgets } from './driver.ts'

const METRICS = [
  { name: 'builds_total', type: 'Counter', help: 'Builds', labels: [{ name: 'result', values: ['ok', 'failed'] }] },
  { name: 'queue_length', type: 'Gauge', help: 'Length' },
]
const measured = widgets({ metrics: METRICS })
const changesOf = (steps: readonly Step[]) =>
  steps.flatMap(({ notes }) => notes).flatMap((note) => (note.note === 'metric' ? [note.change] : []))
const built = (result: string) => ({ name: 'builds_total', labels: { result } })
const failureOf = (steps: readonly Step[]) =>
  steps.flatMap(({ notes }) => notes.flatMap((note) => (note.note === 'failed' ? [String(note.error)] : [])))

describe('a run tells of metrics', () => {
  it('each once, however often the function returns it, when the writes of its outcome have been made', () => {
    const outcome = { status: { phase: 'Up' }, metrics: [built('ok'), { name: 'queue_length', value: 3 }] }
    const steps = drive({ call: [returns(outcome)] }, measured)
    const written = steps.findIndex(({ ask }) => ask.do === 'writeStatus')
    expect(changesOf(steps.slice(0, written + 1))).toEqual([])
    expect(changesOf(steps)).toEqual([
      { name: 'builds_total', type: 'Counter', help: 'Builds', labels: { result: 'ok' }, value: 1 },
      { name: 'queue_length', type: 'Gauge', help: 'Length', labels: {}, value: 3 },
    ])
  })

  it('with no more values of a label than are declared', () => {
    const steps = drive(
      { call: [returns({ metrics: [built('default/web'), built('x'), { name: 'builds_total' }] })] },
      measured,
    )
    expect(changesOf(steps).map(({ labels }) => labels)).toEqual([{ result: 'other' }])
  })

  it.each([
    [[{ name: 'others_total' }], 'metric others_total, which is not declared'],
    [[{ name: 'queue_length', labels: { object: 'web' } }], 'metric queue_length has no label object'],
    [[{ name: 'builds_total', value: -1 }], 'counter builds_total cannot grow by -1'],
  ])('that are declared, and refuses %j', (metrics, message) => {
    const steps = drive({ call: [returns({ metrics })] }, measured)
    expect(changesOf(steps)).toEqual([])
    expect(failureOf(steps)).toEqual([expect.stringContaining(message)])
  })
})

describe('the metrics of functions', () => {
  const change = (name: string, type: 'Counter' | 'Gauge', labels: Record<string, string>, value: number) => ({
    name,
    type,
    help: 'Help',
    labels,
    value,
  })

  it('are counters that grow and gauges that are set, of each Reconciler by itself', async () => {
    const registry = new Registry()
    const apply = functionMetrics(registry)
    for (const controller of ['a', 'a', 'b']) apply(controller, change('builds_total', 'Counter', { result: 'ok' }, 2))
    for (const value of [5, 3]) apply('a', change('queue_length', 'Gauge', {}, value))
    const text = await registry.metrics()
    expect(text).toContain('fairlead_function_builds_total{controller="a",result="ok"} 4')
    expect(text).toContain('fairlead_function_builds_total{controller="b",result="ok"} 2')
    expect(text).toContain('fairlead_function_queue_length{controller="a"} 3')
  })

  it('begin again with another declaration, unless another Reconciler has the name', async () => {
    const registry = new Registry()
    const apply = functionMetrics(registry)
    apply('a', change('builds_total', 'Counter', {}, 2))
    apply('a', change('builds_total', 'Counter', { result: 'ok' }, 1))
    apply('b', change('builds_total', 'Gauge', {}, 7))
    const lines = (await registry.metrics()).split('\n').filter((line) => line.startsWith('fairlead'))
    expect(lines).toEqual(['fairlead_function_builds_total{controller="a",result="ok"} 1'])
  })
})
