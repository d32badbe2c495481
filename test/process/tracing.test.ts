import { describe, expect, it } from 'vitest'
import type { ChangeTracer } from '#bridge'
import type { KubeObject } from '#contracts'
import { type EventStore, spanAfter, traceparentOf } from '#events'
import type { KubeClient } from '#kube'
import type { WorkQueue } from '#queue'
import { Discovery, Publisher } from '../../bridge/publisher.ts'
import { Relations } from '../../bridge/relations.ts'
import { Routes } from '../../bridge/routing.ts'
import { createExporter, createTracing, type FinishedSpan, readOtlp } from '../../cli/process/tracing.ts'
import { startCollector } from '../support/collector.ts'
import { silent } from '../support/silent.ts'

const PARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

describe('a span', () => {
  it('is in the trace of its parent, and keeps whether that is kept', () => {
    const span = spanAfter(PARENT, false)
    expect(span).toMatchObject({
      traceId: '0af7651916cd43dd8448eb211c80319c',
      parentSpanId: 'b7ad6b7169203331',
      sampled: true,
    })
    expect(traceparentOf(span)).toMatch(/^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-01$/)
  })

  it.each([
    undefined,
    '',
    'nonsense',
    '00-00000000000000000000000000000000-b7ad6b7169203331-01',
    '00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01',
  ])('begins a trace where there is none: %s', (parent) => {
    const span = spanAfter(parent, true)
    expect(span).toMatchObject({ traceId: expect.stringMatching(/^[0-9a-f]{32}$/), sampled: true })
    expect(span.parentSpanId).toBeUndefined()
  })
})

const at: KubeObject = { apiVersion: 'v1', kind: 'At', metadata: { name: 'a', namespace: 'default', uid: 'u' } }
const ATS = { group: 'example.com', version: 'v1', resource: 'ats' }

/** Under which traceparent a bridge stores a change, while a run of its process writes the object `written`. */
async function traceparentOfEvent(object: KubeObject, tracer: ChangeTracer): Promise<string | undefined> {
  let traceparent: string | undefined
  const put: EventStore['put'] = async (_ref, _verb, _object, options) => {
    traceparent = options?.traceparent
    return { outcome: 'stored', sequence: 1, origin: undefined, formerOwners: [] }
  }
  const events = { put } as EventStore
  const { signal } = new AbortController()
  const publisher = new Publisher({
    events,
    queue: {} as WorkQueue,
    log: silent,
    ownWrites: {
      needsNoRun: () => false,
      traceOf: (_, { metadata }) => (metadata.name === 'written' ? PARENT : undefined),
      written: () => undefined,
    },
    tracer,
    discovery: new Discovery({} as KubeClient),
    relations: new Relations(
      { events, log: silent, signal, isClusterScoped: async () => false },
      async () => undefined,
    ),
  })
  await publisher.publish({ ref: ATS, news: { verb: 'added', object }, routes: new Routes([]), lane: 'high' }, signal)
  return traceparent
}

describe('what bridge and dispatcher tell', () => {
  it('becomes change → queue → run → call and request, of one trace', () => {
    const kept: FinishedSpan[] = []
    let now = 10_000
    const tracing = createTracing({
      keep: (span) => kept.push(span),
      sample: () => true,
      now: () => now,
    })
    const traceparent = tracing.begin(at)
    tracing.bridge({ ref: ATS, verb: 'added', object: at, outcome: 'stored', ms: 4 })
    const step = { reconciler: 'at', key: 'default.a' }
    now = 10_020
    tracing.run({ ...step, step: 'started', attempt: 0, fired: false, queuedMs: 15, leaseUntil: new Date(9000) })
    const run = spanAfter(traceparent, true)
    const request = spanAfter(traceparentOf(run), true)
    tracing.run({ ...step, ...spanAfter(traceparentOf(run), true), step: 'called', result: 'success', ms: 1 })
    now = 10_030
    const written = { verb: 'create', resource: 'pods.v1', kind: 'Pod', namespace: 'default', name: 'p' } as const
    tracing.run({ ...step, ...request, step: 'written', ...written, resourceVersion: '1', ms: 3 })
    const effect = spanAfter(traceparentOf(run), true)
    tracing.run({ ...step, ...effect, step: 'performed', kind: 'addUser', result: 'error', ms: 2 })
    now = 10_050
    tracing.run({ ...step, ...run, step: 'finished', result: 'error', ms: 25, message: 'no' })
    const inShort = kept.map(({ name, start, end, parentSpanId, error }) => [name, start, end, parentSpanId, error])
    const [publish] = kept
    expect(inShort).toEqual([
      ['publish ats.v1.example.com', 9996, 10_000, undefined, undefined],
      ['call at', 10_019, 10_020, run.spanId, undefined],
      ['create pods.v1', 10_027, 10_030, run.spanId, undefined],
      ['effect addUser', 10_028, 10_030, run.spanId, 'failed'],
      ['queue at', 10_005, 10_020, publish!.spanId, undefined],
      ['run at', 10_020, 10_045, publish!.spanId, 'no'],
    ])
    expect(new Set(kept.map(({ traceId }) => traceId)).size).toBe(1)
    expect(new Set(kept.map(({ spanId }) => spanId)).size).toBe(6)
  })

  it('is a trace in events and logs also when nobody keeps it, and that of the run that writes the object', async () => {
    const tracing = createTracing({ keep: undefined, sample: () => true, now: Date.now })
    expect(await traceparentOfEvent(at, tracing)).toMatch(/-00$/)
    const written = { ...at, metadata: { name: 'written' } }
    expect(await traceparentOfEvent(written, tracing)).toBe(PARENT)
  })
})

describe('the variables of OpenTelemetry', () => {
  it('say where to, how, and as whom', () => {
    expect(
      readOtlp({
        OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/',
        OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20x,tenant=a',
        OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment=test',
        OTEL_SERVICE_NAME: 'mine',
        OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
        OTEL_TRACES_SAMPLER_ARG: '0.25',
      }),
    ).toEqual({
      url: 'http://collector:4318/v1/traces',
      headers: { authorization: 'Bearer x', tenant: 'a' },
      resource: { 'service.name': 'mine', 'deployment.environment': 'test' },
      ratio: 0.25,
    })
  })

  it.each([
    [{}],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: '' }],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://x', OTEL_SDK_DISABLED: 'true' }],
  ])('that keep traces nowhere: %j', (env) => {
    expect(readOtlp(env)).toBeUndefined()
  })

  it.each([
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'collector' }, 'OTEL_EXPORTER_OTLP_ENDPOINT is "collector"'],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://x', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, 'give http/json'],
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://x', OTEL_TRACES_SAMPLER: 'jaeger' }, 'OTEL_TRACES_SAMPLER is "jaeger"'],
  ])('that cannot be are refused by name: %j', (env, message) => {
    expect(() => readOtlp(env)).toThrow(message)
  })
})

describe('the exporter', () => {
  const span = (name: string): FinishedSpan => ({
    ...spanAfter(PARENT, true),
    name,
    kind: 'client',
    start: 1_700_000_000_000.25,
    end: 1_700_000_000_001,
    attributes: { a: 'b', n: 1, none: undefined },
  })
  const configFor = (url: string) => ({
    url,
    headers: { tenant: 'a' },
    resource: { 'service.name': 'x' },
    ratio: 1,
  })

  it('sends what OTLP/HTTP calls JSON, and once more to who has no time', async () => {
    await using collector = await startCollector([503])
    await using exporter = createExporter(configFor(`${collector.url}/v1/traces`), silent)
    exporter.keep({ ...span('a'), error: 'oops' })
    await exporter[Symbol.asyncDispose]()
    expect(collector.requests).toHaveLength(2)
    expect(collector.requests[1]).toMatchObject({
      path: '/v1/traces',
      headers: { 'content-type': 'application/json', tenant: 'a' },
      body: { resourceSpans: [{ resource: { attributes: [{ key: 'service.name', value: { stringValue: 'x' } }] } }] },
    })
    expect(collector.spans).toMatchObject([
      {
        traceId: '0af7651916cd43dd8448eb211c80319c',
        parentSpanId: 'b7ad6b7169203331',
        name: 'a',
        kind: 3,
        startTimeUnixNano: '1700000000000250000',
        endTimeUnixNano: '1700000000001000000',
        attributes: [
          { key: 'a', value: { stringValue: 'b' } },
          { key: 'n', value: { doubleValue: 1 } },
        ],
        status: { code: 2, message: 'oops' },
      },
    ])
  })

  it('drops what nobody takes, and says how much', async () => {
    const said: unknown[] = []
    const log = { ...silent, warn: (fields: object) => said.push(fields) }
    const exporter = createExporter(configFor('http://127.0.0.1:1/v1/traces'), log)
    exporter.keep(span('lost'))
    await exporter[Symbol.asyncDispose]()
    expect(said).toMatchObject([{ spans: 1 }])
  })
})
