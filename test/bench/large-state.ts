/**
 * `npm run bench state -- [runs]`: 256 runs that read 10 MiB each at once, beside small ones: how long they take,
 * what memory the process has, and whether nats-server keeps the connection.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { openEventStore } from '#events'
import { connectJetStream } from '#nats'
import { MAX_STATE_BYTES } from '#reconcile'
import { StateBudget } from '../../dispatch/observe/state-budget.ts'
import { startTestNats } from '../support/servers.ts'
import { percentiles } from './median.ts'

const MIB = 2 ** 20
const OBJECTS = 100
const OBJECT_BYTES = 100 * 1024
/** The duration of a call with these objects. */
const CALL_MS = 20

const quiet = { debug() {}, info() {}, warn: console.warn, error: console.error }
const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps' }
const WIDGETS = { group: 'example.com', version: 'v1', resource: 'widgets' }

const runs = Number(process.argv[2] ?? 256)
await using nats = await startTestNats()
await using js = await connectJetStream({ servers: nats.url, name: 'bench' })
const events = await openEventStore(js, { cluster: 'bench', log: quiet })
const object = (kind: string, name: string, namespace: string, data: object = {}) => ({
  apiVersion: 'v1',
  kind,
  metadata: { name, namespace, uid: `${namespace}-${name}`, resourceVersion: '1' },
  ...data,
})
for (let index = 0; index < OBJECTS; index++)
  await events.put(
    CONFIG_MAPS,
    'added',
    object('ConfigMap', `map-${index}`, 'large', { data: { filler: 'x'.repeat(OBJECT_BYTES) } }),
  )
for (const namespace of ['large', 'small']) await events.put(WIDGETS, 'added', object('Widget', 'w', namespace))

let disconnected = 0
js.onDisconnect(() => disconnected++)
const state = new StateBudget(MAX_STATE_BYTES)
const { signal } = new AbortController()
async function run(namespace: string): Promise<number> {
  using held = state.ofRun({ suspect: false, signal })
  const { related } = await held.read((allowance) =>
    events.observe({
      primary: { ref: WIDGETS, namespace, name: 'w' },
      related: [{ ref: CONFIG_MAPS, namespace }],
      allowance,
      signal,
    }),
  )
  await sleep(CALL_MS)
  return related[0]?.length ?? 0
}

let most = 0
const watching = setInterval(() => {
  most = Math.max(most, process.memoryUsage.rss())
}, 20)
const before = process.memoryUsage.rss()
const began = performance.now()
const over = new AbortController()
const large = Promise.all(Array.from({ length: runs }, () => run('large'))).finally(() => over.abort())
const small: number[] = []
while (!over.signal.aborted) {
  const from = performance.now()
  await run('small')
  small.push(performance.now() - from - CALL_MS)
}
const found = await large
const seconds = (performance.now() - began) / 1000
clearInterval(watching)
console.log(`${runs} runs of ${((OBJECTS * OBJECT_BYTES) / MIB).toFixed(1)} MiB at once: ${seconds.toFixed(1)} s`)
console.log(`all objects seen: ${found.every((count) => count === OBJECTS)}; connections lost: ${disconnected}`)
console.log(`memory: ${Math.round(before / MIB)} MiB before, ${Math.round(most / MIB)} MiB at most`)
console.log(`reads of ${small.length} small runs beside them: ${percentiles(small)} ms (median / 99th)`)
