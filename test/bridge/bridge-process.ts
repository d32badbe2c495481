/**
 * A bridge to be killed: `node bridge-process.ts <kubeconfig> <NATS URL> <prefix> <file>`. For every key it enqueues, it
 * first appends a line with the version that a run beginning now would read: `<key> <resourceVersion>`. It sends a message
 * when it watches.
 */
import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { createBridge } from '#bridge'
import { identityFilter, openEventStore, parseKey } from '#events'
import { connectJetStream, incarnationOf } from '#nats'
import { configMaps } from './objects.ts'
import { kubeClientOf, silent, until } from './world.ts'

const [kubeconfig = '', natsUrl = '', prefix = '', file = ''] = process.argv.slice(2)
// The parent process has ended.
process.on('disconnect', () => process.exit(1))

const js = await connectJetStream({ servers: natsUrl, name: prefix })
const events = await openEventStore(js, { prefix, cluster: 'test', log: silent })
const bridge = createBridge({
  kube: await kubeClientOf(kubeconfig),
  events,
  queue: {
    async declare() {},
    isServed: async () => false,
    find: async () => [],
    enqueue: (_reconciler, key) => writeDown(key).then(() => 'queued'),
    announce: (_reconciler, key) => ({ noted: false, safe: writeDown(key).then(() => 'token') }),
  },
  log: silent,
  incarnation: incarnationOf(js, [events], { creates: true }),
})
const running = bridge.run(new AbortController().signal, 0)
const isWatching = async () =>
  bridge.status().resources.some(({ resource, open }) => resource === 'configmaps.v1' && open)
await until(isWatching, { what: 'ConfigMaps are watched' })
process.send?.('watching')
await running

/** Slow, so that kills between storing and enqueueing are frequent. */
async function writeDown(key: string): Promise<void> {
  await sleep(Math.random() * 100)
  const stored = await js.lastOf(events.stream, `${prefix}.${identityFilter({ ref: configMaps, ...parseKey(key) })}`)
  appendFileSync(file, `${key} ${stored?.headers['ce-resourceversion']}\n`)
}
