import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { isDeclared, type MetricChange } from '#reconcile'
import { PAUSED_ANNOTATION, reconcilerSpec } from '#spec'
import { functionMetrics } from '../../cli/process/function-metrics.ts'
import { widget } from '../dispatch/objects.ts'
import { asksOf, drive, fails, GONE, returns, type Step, sees, widgets } from './driver.ts'

const METRICS = [
  { name: 'builds_total', type: 'Counter', help: 'Builds', labels: [{ name: 'result', values: ['ok', 'failed'] }] },
  { name: 'queue_length', type: 'Gauge', help: 'Length' },
]
const measured = widgets({ metrics: METRICS })
const notesOf = (steps: readonly Step[]) => steps.flatMap(({ notes }) => notes)
const countersOf = (steps: readonly Step[]) =>
  notesOf(steps).flatMap((note) => (note.note === 'counter' ? [note.change] : []))
/** The values of the gauges, each time that they are told. */
const gaugesOf = (steps: readonly Step[]) =>
  notesOf(steps).flatMap((note) => (note.note === 'gauges' ? [note.changes.map(({ value }) => value)] : []))
const built = (result: string) => ({ name: 'builds_total', labels: { result } })
const failureOf = (steps: readonly Step[]) =>
  steps.flatMap(({ notes }) => notes.flatMap((note) => (note.note === 'failed' ? [String(note.error)] : [])))

describe('a run tells of', () => {
  it('counters each once, however often the function returns them, when the writes of its outcome have been made', () => {
    const outcome = { status: { phase: 'Up' }, metrics: [built('ok'), { name: 'queue_length', value: 3 }] }
    const steps = drive({ call: [returns(outcome)] }, measured)
    const written = steps.findIndex(({ ask }) => ask.do === 'writeStatus')
    expect(countersOf(steps.slice(0, written + 1))).toEqual([])
    expect(countersOf(steps)).toEqual([
      { name: 'builds_total', type: 'Counter', help: 'Builds', labels: { result: 'ok' }, value: 1 },
    ])
    expect(gaugesOf(steps)).toEqual([[3]])
  })

  it('gauges as the last outcome has them', () => {
    const gauge = (value: number, phase: string) =>
      returns({ status: { phase }, metrics: [{ name: 'queue_length', value }] })
    const steps = drive({ call: [gauge(3, 'A'), gauge(5, 'B'), gauge(3, 'B')] }, measured)
    expect(gaugesOf(steps)).toEqual([[3]])
    expect(gaugesOf(drive({ call: [returns({ metrics: [built('ok')] })] }, measured))).toEqual([[]])
  })

  it('no gauges of an object that is gone, is paused, or has left the selection', () => {
    const paused = widget({ metadata: { annotations: { [PAUSED_ANNOTATION]: 'true' } } })
    const selected = widgets({ metrics: METRICS, for: { ...measured.spec.for, selector: 'team=a' } })
    for (const steps of [
      drive({ observe: [GONE] }, measured),
      drive({ observe: [sees(paused)] }, measured),
      drive({ observe: [sees(widget())] }, selected),
    ])
      expect([asksOf(steps).includes('call'), gaugesOf(steps)]).toEqual([false, [[]]])
  })

  it('gauges neither when it fails nor when the outside system cannot be read yet, so those of before stay', () => {
    const failing = drive({ call: [fails(new Error('broken'))] }, measured)
    const limited = drive(
      { read: [{ did: 'read', limitedMs: 5000 }] },
      widgets({ metrics: METRICS, external: { timeoutSeconds: 5 } }),
    )
    for (const steps of [failing, limited]) expect(gaugesOf(steps)).toEqual([])
    expect(limited.at(-1)?.ask).toMatchObject({ finish: { kind: 'requeue' } })
  })

  it('no gauges if the function has none', () => {
    const counting = widgets({ metrics: METRICS.slice(0, 1) })
    expect(gaugesOf(drive({ call: [returns({ metrics: [built('ok')] })] }, counting))).toEqual([])
  })

  it('no more values of a label than are declared', () => {
    const steps = drive(
      { call: [returns({ metrics: [built('default/web'), built('x'), { name: 'builds_total' }] })] },
      measured,
    )
    expect(countersOf(steps).map(({ labels }) => labels)).toEqual([{ result: 'other' }])
  })

  it.each([
    [[{ name: 'others_total' }], 'metric others_total, which is not declared'],
    [[{ name: 'queue_length', labels: { object: 'web' } }], 'metric queue_length has no label object'],
    [[{ name: 'builds_total', value: -1 }], 'counter builds_total cannot grow by -1'],
  ])('nothing but what is declared, and refuses %j', (metrics, message) => {
    const steps = drive({ call: [returns({ metrics })] }, measured)
    expect([countersOf(steps), gaugesOf(steps)]).toEqual([[], []])
    expect(failureOf(steps)).toEqual([expect.stringContaining(message)])
  })
})

describe('a declaration is refused', () => {
  const faultOf = (...metrics: object[]) => {
    const { error } = reconcilerSpec.shape.metrics.safeParse(metrics)
    return error?.issues.map(({ path, message }) => `${path.join('.')}: ${message}`)
  }
  const [counter, gauge] = METRICS
  const labelled = (...names: string[]) => ({ ...gauge, labels: names.map((name) => ({ name, values: ['a'] })) })

  it.each(['controller', 'namespace', 'pod', 'container', 'service', 'job', 'instance', 'endpoint'])(
    'whose label %s would be one of Fairlead or Prometheus',
    (name) =>
      expect(faultOf(labelled(name))).toEqual([expect.stringMatching(/^0.labels.0.name: choose another name: /)]),
  )

  it('whose counter does not end with _total, or whose gauge does, so that one name has one type in all functions', () => {
    const message = '0.name: the name of a Counter ends with _total, and that of a Gauge does not'
    expect(faultOf({ ...counter, name: 'builds' })).toEqual([message])
    expect(faultOf({ ...gauge, name: 'builds_total' })).toEqual([message])
  })

  it('that has a name twice', () => {
    expect(faultOf(counter ?? {}, counter ?? {})).toEqual([': two metrics need two names'])
    expect(faultOf(labelled('a', 'a'))).toEqual(['0.labels: two labels need two names'])
    expect(faultOf(counter ?? {}, labelled('a', 'b'))).toBeUndefined()
  })
})

describe('the metrics of functions', () => {
  const change = (
    name: string,
    type: MetricChange['type'],
    labels: Record<string, string>,
    value: number,
  ): MetricChange => ({ name, type, help: 'Help', labels, value })
  const built = (labels: Record<string, string>, value: number) => change('builds_total', 'Counter', labels, value)
  const length = (queue: string, value: number) => change('queue_length', 'Gauge', { queue }, value)

  function registered() {
    const registry = new Registry()
    /** All lines that are shown, without the prefix. */
    const shown = async () =>
      (await registry.metrics())
        .split('\n')
        .flatMap((line) => /^(?:# TYPE )?fairlead_function_(.*)$/.exec(line)?.[1] ?? [])
    return { ...functionMetrics(registry), shown }
  }

  it('are counters that grow and gauges that are set, of each Reconciler by itself', async () => {
    const { counted, measured, shown } = registered()
    for (const controller of ['a', 'a', 'b']) counted(controller, built({ result: 'ok' }, 2))
    for (const value of [5, 3]) measured('a', 'n.x', [length('q', value)])
    expect(await shown()).toEqual([
      'builds_total counter',
      'builds_total{controller="a",result="ok"} 4',
      'builds_total{controller="b",result="ok"} 2',
      'queue_length gauge',
      'queue_length{controller="a",queue="q"} 3',
    ])
  })

  it('may have one name in several Reconcilers, each with its own labels: nobody denies a name to others', async () => {
    const { counted, shown } = registered()
    counted('a', built({ result: 'ok' }, 1))
    counted('b', built({}, 2))
    counted('c', built({ size: 'big', place: 'eu' }, 3))
    expect(await shown()).toEqual([
      'builds_total counter',
      'builds_total{controller="a",result="ok"} 1',
      'builds_total{controller="b"} 2',
      'builds_total{controller="c",size="big",place="eu"} 3',
    ])
  })

  it('lose a gauge when the object that has set it last does not have it any more, and no others', async () => {
    const { counted, measured, shown } = registered()
    counted('a', built({}, 1))
    measured('a', 'n.x', [length('p', 1), length('q', 1)])
    measured('a', 'n.y', [length('q', 2), length('r', 2)])
    measured('b', 'n.x', [length('p', 3)])
    measured('a', 'n.x', [length('s', 4)])
    const rest = ['queue_length{controller="a",queue="q"} 2', 'queue_length{controller="a",queue="r"} 2']
    const ofB = 'queue_length{controller="b",queue="p"} 3'
    const total = ['builds_total counter', 'builds_total{controller="a"} 1']
    expect(await shown()).toEqual([
      ...total,
      'queue_length gauge',
      ...rest,
      'queue_length{controller="a",queue="s"} 4',
      ofB,
    ])
    measured('a', 'n.x', [])
    expect(await shown()).toEqual([...total, 'queue_length gauge', ...rest, ofB])
    measured('a', 'n.y', [])
    measured('b', 'n.x', [])
    expect(await shown()).toEqual(total)
  })

  it('lose the series that a new declaration does not have, and begin again with 0', async () => {
    const { counted, measured, declared, shown } = registered()
    const declare = (...metrics: object[]) => {
      const spec = { metrics: reconcilerSpec.shape.metrics.parse(metrics) }
      declared('a', (series) => isDeclared(spec, series))
    }
    for (const result of ['ok', 'failed', 'other']) counted('a', built({ result }, 1))
    counted('b', built({ result: 'failed' }, 1))
    measured('a', 'n.x', [change('queue_length', 'Gauge', {}, 1)])
    const ofB = 'builds_total{controller="b",result="failed"} 1'
    const builds = { ...METRICS[0], labels: [{ name: 'result', values: ['ok'] }] }
    declare(builds)
    expect(await shown()).toEqual([
      'builds_total counter',
      'builds_total{controller="a",result="ok"} 1',
      'builds_total{controller="a",result="other"} 1',
      ofB,
    ])
    declare({ ...builds, labels: [] })
    counted('a', built({}, 1))
    expect(await shown()).toEqual(['builds_total counter', ofB, 'builds_total{controller="a"} 1'])
    declared('a', () => false)
    declared('b', () => false)
    expect(await shown()).toEqual([])
  })
})
