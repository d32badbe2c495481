import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { type EventStore, keyOf, openEventStore } from '#events'
import { connectJetStream, type JetStream } from '#nats'
import { openQueue } from '#queue'
import { RESYNCS, type Resyncs as ResyncsType } from '../../bridge/resyncs.ts'
import { Routes } from '../../bridge/routing.ts'
import { configMaps, reconciler } from '../bridge/objects.ts'
import { startTestNats } from '../support/servers.ts'
import { silent } from '../support/silent.ts'

/**
 * `node test/bench/resyncs.ts [--others COUNT] [--base CHECKOUT]`: a resync of a Reconciler that selects 10 objects, beside
 * other objects of the kind, which another Reconciler selects, until all enqueued keys have run. `--base`: with the
 * resyncs of another checkout, before each of these.
 */
const SELECTED = 10
const AT_ONCE = 500
const PERIOD_S = 100
const BEGIN = Date.parse('2030-01-01T00:00:00Z')
const { base, others } = parseArgs({
  options: { base: { type: 'string' }, others: { type: 'string', default: '100000' } },
}).values
const here = fileURLToPath(new URL('../..', import.meta.url))
const checkouts = { ...(base !== undefined && { base }), here }

await using nats = await startTestNats()
const js = await connectJetStream({ servers: nats.url, name: 'bench' })
const events = await openEventStore(js, { cluster: 'bench', log: silent })
await putAll(SELECTED, 'mine')
await putAll(Number(others), 'other')

const rows: Record<string, Record<string, string>> = {}
for (const [checkout, folder] of Object.entries(checkouts)) {
  const { Resyncs } = (await import(join(folder, 'bridge/resyncs.ts'))) as { Resyncs: typeof ResyncsType }
  for (const [selection, more] of Object.entries({
    'a namespace': { namespaces: ['mine'] },
    'a label': { selector: 'app=mine' },
  })) {
    // A store without an index that another measurement has read.
    await using own = await connectJetStream({ servers: nats.url, name: 'bench' })
    const store = await openEventStore(own, { cluster: 'bench', log: silent })
    for (const which of ['first', 'second'])
      rows[`${selection}, ${which} resync, ${checkout}`] = await measured(own, store, Resyncs, more)
  }
}
console.table(rows)
process.exit(0)

async function measured(
  own: JetStream,
  store: EventStore,
  Resyncs: typeof ResyncsType,
  more: object,
): Promise<Record<string, string>> {
  const few = reconciler('few', { for: { ...configMaps, ...more }, resyncSeconds: PERIOD_S })
  const many = reconciler('many', { for: configMaps })
  const at = new Date(BEGIN).toISOString()
  await store.setCursor(RESYNCS, few.name, { resourceVersion: '0', at, covers: [few.coverageId] })
  const queue = await openQueue(own, { log: silent })
  await queue.declare(few.name)
  let runs = 0
  const worker = queue.serve({
    reconciler: few.name,
    slots: 50,
    handler: async () => {
      runs++
      return { kind: 'done' }
    },
  })
  const before = { sent: own.nc.stats().outMsgs, cpu: process.cpuUsage(), at: performance.now() }
  const stop = new AbortController()
  const resyncs = new Resyncs({
    events: store,
    log: silent,
    now: () => new Date(BEGIN + 1.2 * PERIOD_S * 1000),
    random: () => 0.5,
    reconcilers: () => [few],
    routes: () => new Routes([few, many]),
    enqueue: async (name, key, lane) => void (await queue.enqueue(name, key, { lane })),
  })
  const running = resyncs.run(stop.signal)
  while (Date.parse((await events.cursor(RESYNCS, few.name))?.at ?? '') === BEGIN) await sleep(20)
  while (Object.values(await queue.depth(few.name)).some((count) => count > 0)) await sleep(20)
  const seconds = (performance.now() - before.at) / 1000
  const { user, system } = process.cpuUsage(before.cpu)
  const sent = own.nc.stats().outMsgs - before.sent
  stop.abort()
  await running
  await worker.drain(1000)
  return {
    runs: String(runs),
    seconds: seconds.toFixed(1),
    'CPU, s': ((user + system) / 1e6).toFixed(2),
    'messages sent': String(sent),
  }
}

async function putAll(count: number, what: string): Promise<void> {
  const put = (at: number) =>
    events.put(configMaps, 'added', {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: {
        namespace: what,
        name: `${what}-${at}`,
        uid: keyOf(what, `${at}`),
        resourceVersion: '1',
        labels: { app: what },
      },
      data: { text: 'x'.repeat(1000) },
    })
  for (let from = 0; from < count; from += AT_ONCE)
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, index) => put(from + index)))
}
