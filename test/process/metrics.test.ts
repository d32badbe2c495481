import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { Registry } from 'prom-client'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { BridgeStatus } from '#bridge'
import { deadKey, openDeadLetters, openEventStore } from '#events'
import type { Nats } from '#lab'
import type { Finish } from '#queue'
import { readConfig } from '../../cli/process/config.ts'
import { certificateGauge, createMetrics, depthGauges, storageGauges } from '../../cli/process/metrics.ts'
import { openJetStream } from '../../cli/process/nats.ts'
import { bridgeGauges, runMetrics } from '../../cli/process/run-metrics.ts'
import { DONE, FN, freshPrefix, gate, openTestQueue, until } from '../queue/support.ts'
import { startDeployedNats } from '../support/deployed-nats.ts'
import { startTestNats } from '../support/servers.ts'
import { silent as log } from '../support/silent.ts'

let nats: Nats & AsyncDisposable
beforeAll(async () => {
  nats = await startTestNats()
})
afterAll(() => nats[Symbol.asyncDispose]())

/** What is exported, by name and labels. */
async function exported(registry: Registry): Promise<Record<string, number>> {
  const lines = (await registry.metrics()).split('\n').filter((line) => line !== '' && !line.startsWith('#'))
  return Object.fromEntries(
    lines.map((line) => {
      const end = line.lastIndexOf(' ')
      return [line.slice(0, end).replaceAll('"', ''), Number(line.slice(end + 1))]
    }),
  )
}

it('counts runs under the names of controller-runtime, from 0 on', async () => {
  let time = 0
  const registry = new Registry()
  const { run, start, queue } = runMetrics(registry, () => time)
  start(['at'])
  expect(await exported(registry)).toMatchObject({
    'controller_runtime_reconcile_total{controller=at,result=success}': 0,
    'controller_runtime_reconcile_total{controller=at,result=error}': 0,
    'controller_runtime_reconcile_total{controller=at,result=requeue}': 0,
    'controller_runtime_reconcile_total{controller=at,result=requeue_after}': 0,
    'controller_runtime_reconcile_errors_total{controller=at}': 0,
    'controller_runtime_terminal_reconcile_errors_total{controller=at}': 0,
    'controller_runtime_reconcile_panics_total{controller=at}': 0,
    'controller_runtime_reconcile_timeouts_total{controller=at}': 0,
    'controller_runtime_active_workers{controller=at}': 0,
    'workqueue_adds_total{name=at,controller=at}': 0,
    'workqueue_retries_total{name=at,controller=at}': 0,
    'workqueue_unfinished_work_seconds{name=at,controller=at}': 0,
    'fairlead_leases_lost_total{controller=at}': 0,
  })
  const began = (key: string) =>
    run({
      reconciler: 'at',
      key,
      step: 'started',
      attempt: 0,
      fired: false,
      queuedMs: 5,
      leaseUntil: new Date(9000),
    })
  const ended = (key: string, result: 'success' | 'requeue_after' | 'error' | 'terminal' | 'fenced') =>
    run({ reconciler: 'at', key, step: 'finished', result, ms: 20, message: undefined })
  for (const [key, result] of Object.entries({
    a: 'success',
    b: 'requeue_after',
    c: 'error',
    d: 'terminal',
    e: 'fenced',
  } as const)) {
    began(key)
    ended(key, result)
  }
  began('f')
  queue.onLost?.('at')
  time = 1000
  began('g')
  run({ reconciler: 'at', key: 'g', step: 'timedOut' })
  run({ reconciler: 'at', key: 'g', step: 'read', result: 'success', ms: 20 })
  for (let kind = 0; kind < 70; kind++)
    run({ reconciler: 'at', key: 'g', step: 'performed', kind: `kind${kind}`, result: 'error', ms: 10 })
  time = 3000
  expect(await exported(registry)).toMatchObject({
    'controller_runtime_reconcile_total{controller=at,result=success}': 1,
    'controller_runtime_reconcile_total{controller=at,result=requeue_after}': 1,
    'controller_runtime_reconcile_total{controller=at,result=error}': 2,
    'controller_runtime_reconcile_errors_total{controller=at}': 2,
    'controller_runtime_terminal_reconcile_errors_total{controller=at}': 1,
    'controller_runtime_reconcile_panics_total{controller=at}': 1,
    'controller_runtime_reconcile_timeouts_total{controller=at}': 1,
    'fairlead_external_read_duration_seconds_sum{reconciler=at,result=success}': 0.02,
    'fairlead_effects_total{reconciler=at,kind=kind63,result=error}': 1,
    'fairlead_effects_total{reconciler=at,kind=other,result=error}': 6,
    'fairlead_effect_duration_seconds_count{reconciler=at,kind=kind0}': 1,
    'controller_runtime_active_workers{controller=at}': 2,
    'controller_runtime_reconcile_time_seconds_count{controller=at}': 5,
    'controller_runtime_reconcile_time_seconds_sum{controller=at}': 0.1,
    'controller_runtime_reconcile_time_seconds_bucket{le=0.01,controller=at}': 0,
    'controller_runtime_reconcile_time_seconds_bucket{le=0.025,controller=at}': 5,
    'workqueue_unfinished_work_seconds{name=at,controller=at}': 5,
    'workqueue_longest_running_processor_seconds{name=at,controller=at}': 3,
  })
})

it('counts what a queue takes in and gives out', async () => {
  const metrics = createMetrics()
  await using test = await openTestQueue(nats.url, freshPrefix(), { observer: metrics.queue })
  const { queue } = test
  for (const key of ['n.done', 'n.done', 'n.timer', 'n.fails', 'n.bad']) await queue.enqueue(FN, key)
  const endings: Record<string, (fired: boolean) => Finish> = {
    'n.timer': (fired) => (fired ? DONE : { kind: 'requeue', at: new Date(Date.now() + 300) }),
    'n.fails': () => ({ kind: 'error', message: 'x', retryAt: new Date(Date.now() + 3_600_000) }),
    'n.bad': () => ({ kind: 'terminal', message: 'x' }),
  }
  const worker = queue.serve({
    reconciler: FN,
    slots: 6,
    handler: async ({ key, fired }) => endings[key]?.(fired) ?? DONE,
  })
  const q = `{name=${FN},controller=${FN}}`
  await until(async () =>
    expect((await exported(metrics.registry))[`workqueue_work_duration_seconds_count${q}`]).toBe(5),
  )
  await worker.drain(1000)
  expect(await exported(metrics.registry)).toMatchObject({
    [`workqueue_adds_total${q}`]: 4,
    [`fairlead_changes_coalesced_total{controller=${FN}}`]: 1,
    [`workqueue_retries_total${q}`]: 1,
    [`workqueue_queue_duration_seconds_count${q}`]: 5,
    [`workqueue_queue_duration_seconds_bucket{le=1e-8,name=${FN},controller=${FN}}`]: expect.any(Number),
    [`workqueue_queue_duration_seconds_bucket{le=1000,name=${FN},controller=${FN}}`]: 5,
    [`controller_runtime_max_concurrent_reconciles{controller=${FN}}`]: 6,
    [`fairlead_timer_lateness_seconds_count{controller=${FN}}`]: 1,
    [`fairlead_timer_lateness_seconds_bucket{le=60,controller=${FN}}`]: 1,
    [`fairlead_leases_lost_total{controller=${FN}}`]: 0,
  })
})

it('counts requests to the API server by code, method and host', async () => {
  const metrics = createMetrics()
  for (const code of ['200', '200', '409']) metrics.onRequest({ code, method: 'GET', host: 'h:1', ms: 1 } as never)
  expect(await exported(metrics.registry)).toMatchObject({
    'rest_client_requests_total{code=200,method=GET,host=h:1}': 2,
    'rest_client_requests_total{code=409,method=GET,host=h:1}': 1,
  })
})

it('tells when the certificates end by which it and NATS know each other', async () => {
  await using deployed = await startDeployedNats()
  const env = await deployed.as('fairlead-dispatcher')
  const { NATS_CERT = '' } = env
  const registry = new Registry()
  const end = (certificate: string) =>
    `fairlead_nats_certificate_expiration_timestamp_seconds{certificate=${certificate}}`
  const config = readConfig({ ...env, KUBECONFIG: '/dev/null' })
  const observer = certificateGauge(registry, NATS_CERT)
  const js = await openJetStream(config, 'test', { certificates: observer })
  await js.close()
  const own = new X509Certificate(readFileSync(NATS_CERT)).validToDate
  const ends = await exported(registry)
  expect(ends).toEqual({
    [end('client')]: own.getTime() / 1000,
    [end('server')]: expect.closeTo(own.getTime() / 1000, -2),
  })
  expect(await exported(withoutTls())).toEqual({})
})

/** Returns the metrics of a process that connects to NATS without TLS. */
function withoutTls(): Registry {
  const registry = new Registry()
  certificateGauge(registry, undefined)
  return registry
}

it('tells the depth from the stream: the same in a process that has done nothing', async () => {
  const prefix = freshPrefix()
  await using at = await openTestQueue(nats.url, prefix)
  await using elsewhere = await openTestQueue(nats.url, prefix)
  const dead = await openDeadLetters(elsewhere.js, { prefix, cluster: 'c', log })
  const since = new Date()
  await dead.put(
    deadKey({ reconciler: FN, key: 'x', lane: 'high', since, stream: 'WORK', reason: 'invalid-key', detail: 'x' }),
  )
  const goesOn = gate()
  const worker = at.queue.serve({
    reconciler: FN,
    slots: 8,
    handler: async ({ key }) => {
      if (key === 'n.waits') return { kind: 'requeue', at: new Date(Date.now() + 3_600_000) }
      if (key === 'n.parked') return { kind: 'terminal', message: 'bad' }
      await goesOn.opened
      return DONE
    },
  })
  for (const key of ['n.waits', 'n.parked', 'n.runs']) await at.queue.enqueue(FN, key)
  await until(async () => expect(await at.queue.depth(FN)).toEqual({ queued: 0, running: 1, waiting: 1, parked: 1 }))
  const drained = worker.drain(5000)
  goesOn.open()
  await drained
  for (const key of ['n.a', 'n.b']) await at.queue.enqueue(FN, key)
  await at.queue.enqueue(FN, 'n.c', { lane: 'low' })

  const registry = new Registry()
  depthGauges(registry, elsewhere.queue, dead, () => Date.now() + 60_000)
  const found = await exported(registry)
  expect(found).toMatchObject({
    [`workqueue_depth{name=${FN},controller=${FN},priority=0}`]: 2,
    [`workqueue_depth{name=${FN},controller=${FN},priority=-100}`]: 1,
    [`fairlead_keys{controller=${FN},state=queued}`]: 3,
    [`fairlead_keys{controller=${FN},state=running}`]: 0,
    [`fairlead_keys{controller=${FN},state=waiting}`]: 1,
    [`fairlead_keys{controller=${FN},state=parked}`]: 1,
    'fairlead_dead_letters{reason=invalid-key}': 1,
    'fairlead_dead_letters{reason=too-large}': 0,
    fairlead_nats_reachable: 1,
  })
  expect(Math.round(found[`fairlead_oldest_queued_seconds{controller=${FN}}`]! / 60)).toBe(1)
})

it('tells the bytes of each stream, the limit at which it rejects messages, and the storage of NATS', async () => {
  const prefix = freshPrefix()
  await using at = await openTestQueue(nats.url, prefix)
  await openEventStore(at.js, { prefix, cluster: 'c', log, maxBytes: 2 ** 20 })
  await openDeadLetters(at.js, { prefix, cluster: 'c', log })
  await at.js.admin.streams.update(`${prefix}_DEAD`, { max_bytes: 2 ** 20 })
  const registry = new Registry()
  const streams = ['EVENTS', 'WORK', 'DEAD', 'RUNS'].map((name) => `${prefix}_${name}`)
  storageGauges(registry, streams, (stream) => at.js.usage(stream), 2 ** 30)
  const bytesOf = async (name: string) => (await at.js.admin.streams.info(`${prefix}_${name}`)).state.bytes
  expect(await bytesOf('EVENTS')).toBeGreaterThan(0)
  expect(await exported(registry)).toEqual({
    [`fairlead_stream_bytes{stream=${prefix}_EVENTS}`]: await bytesOf('EVENTS'),
    [`fairlead_stream_bytes{stream=${prefix}_WORK}`]: await bytesOf('WORK'),
    [`fairlead_stream_bytes{stream=${prefix}_DEAD}`]: 0,
    [`fairlead_stream_max_bytes{stream=${prefix}_EVENTS}`]: 2 ** 20,
    fairlead_storage_max_bytes: 2 ** 30,
  })
})

it('tells how many objects wait for the finalizer of a Reconciler that does not exist, as long as it is known', async () => {
  const registry = new Registry()
  const orphan = { reconciler: 'website', resource: 'websites.v1.example.com', holders: 3, waiting: 2 }
  const status: BridgeStatus = { resources: [], refused: [], orphans: [orphan], paused: [] }
  bridgeGauges(registry, () => status)
  const series = 'fairlead_orphaned_finalizers{controller=website,resource=websites.v1.example.com}'
  expect(await exported(registry)).toEqual({ [series]: 2 })
  status.orphans = []
  expect(await exported(registry)).toEqual({})
})

it('tells which Reconcilers are paused, as long as they are', async () => {
  const registry = new Registry()
  const status: BridgeStatus = { resources: [], refused: [], orphans: [], paused: ['website'] }
  bridgeGauges(registry, () => status)
  expect(await exported(registry)).toEqual({ 'fairlead_reconciler_paused{controller=website}': 1 })
  status.paused = []
  expect(await exported(registry)).toEqual({})
})

it('is scraped also when NATS does not answer', async () => {
  const registry = new Registry()
  const never = () => Promise.reject(new Error('no answer'))
  depthGauges(registry, { reconcilers: never, depth: never, backlog: never }, { count: never })
  storageGauges(registry, ['EVENTS'], never)
  expect(await exported(registry)).toEqual({ fairlead_nats_reachable: 0 })
})
