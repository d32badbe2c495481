import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { type EventStore, openEventStore } from '#events'
import type { JetStream } from '#nats'
import { LEASHED } from '../support/fairlead.ts'
import { connectTo } from '../support/jetstream.ts'
import { randomFrom } from '../support/random.ts'
import { configMaps } from './objects.ts'
import { type Servers, startServers } from './servers.ts'
import {
  configMap,
  configMapPath,
  createReconciler,
  present,
  silent,
  startBridge,
  until,
  untilEqual,
  versions,
  writeConfigMap,
} from './world.ts'

const seed = Number(process.env['SEED'] ?? Date.now() % 1_000_000)
const OBJECTS = 500
const ROUNDS = 4

let servers: Servers
let cluster: Servers['cluster']
let nats: Servers['nats']
let kube: Servers['kube']
let js: JetStream

beforeAll(async () => {
  servers = await startServers()
  ;({ cluster, nats, kube } = servers)
  js = await connectTo(nats.url, 'kill-test')
  await createReconciler(kube, 'maps', { for: { ...configMaps, namespaces: ['default'] } })
})

afterAll(async () => {
  await js?.close()
  await servers?.[Symbol.asyncDispose]()
})

it(`bridges killed with -9 at any moment leave the stream that one leaves in peace, and enqueue every key after its last change; the last one left goes on (SEED=${seed})`, async () => {
  const random = randomFrom(seed)
  await using undisturbed = await startBridge(kube, nats.url, { prefix: 'peace' })
  await undisturbed.synced('configmaps.v1')
  const groups = await Promise.all([startGroup(1), startGroup(3)])
  const changing = new AbortController()
  const load = changeAtRandom(random, changing.signal)
  for (let round = 0; round < ROUNDS; round++) {
    await sleep(100 + random() * 900)
    for (const group of groups) await group.killOne(random())
  }
  for (const group of groups) await group.killOthers()
  const { metadata } = await kube.create(configMapPath(), configMap('after', 'new'))
  changing.abort()
  const changed = await load
  await untilEqual(kube, undisturbed.events, configMaps, 'default')
  for (const { events, lines, end } of groups) {
    const isEnqueued = async () => (await lines()).has(`default.${metadata.name} ${metadata.resourceVersion}`)
    await until(isEnqueued, { what: 'a change after the last kill is stored and enqueued' })
    await untilEqual(kube, events, configMaps, 'default')
    // A deletion that follows is not among the objects compared above.
    const isSame = async () => isDeepStrictEqual(await contentOf(events), await contentOf(undisturbed.events))
    await until(isSame, { what: 'the contents are the same' }).catch(() => undefined)
    expect(await contentOf(events)).toEqual(await contentOf(undisturbed.events))
    // Objects that were created and deleted before the first list are unknown to every bridge.
    const newest = await versions(events)
    let missing: string[] = []
    await until(
      async () => {
        const told = await lines()
        missing = [...changed].filter((key) => newest.has(key) && !told.has(`${key} ${newest.get(key)}`))
        return missing.length === 0
      },
      { what: 'every changed key is enqueued' },
    ).catch(() => undefined)
    await end()
    expect(missing).toEqual([])
  }
})

/** So many bridges on a stream of their own, which watch and have stored their first list. */
async function startGroup(bridges: number) {
  const prefix = `kill${bridges}`
  const file = join(cluster.dir, prefix)
  await writeFile(file, '')
  const start = () => {
    const args = [cluster.kubeconfig, nats.url, prefix, file]
    const child = fork(new URL('bridge-process.ts', import.meta.url), args, { execArgv: LEASHED })
    const ended = once(child, 'exit').then(([code]) => Promise.reject(new Error(`a bridge ended by itself: ${code}`)))
    const watching = Promise.race([once(child, 'message'), ended])
    // A bridge that is killed before it watches never resolves this promise.
    watching.catch(() => {})
    return { child, watching }
  }
  const running = Array.from({ length: bridges }, start)
  const events = await openEventStore(js, { prefix, cluster: 'test', log: silent })
  // What one lists while it changes may be called otherwise: added, though it was modified since.
  await Promise.all(running.map(({ watching }) => watching))
  await until(async () => (await events.cursor(configMaps, 'default')) !== undefined, {
    what: 'the first list is stored',
  })
  return {
    events,
    lines: async () => new Set((await readFile(file, 'utf8')).split('\n')),
    async killOne(random: number) {
      const victim = Math.floor(random * bridges)
      await kill(running[victim]!)
      running[victim] = start()
    },
    async killOthers() {
      const [last, ...others] = running
      await last?.watching
      await Promise.all(others.map(kill))
    },
    end: () => Promise.all(running.map(kill)),
  }
}

/** Returns the contents of all ConfigMaps in a stream, including deletions, without the times of their messages. */
async function contentOf(events: EventStore): Promise<Map<string, object>> {
  const content = new Map<string, object>()
  const end = new AbortController()
  for await (const { key, event } of events.follow({ ref: configMaps }, end.signal, () => end.abort())) {
    const { time: _, ...said } = event
    content.set(key.name, said)
  }
  return content
}

/** Creates, replaces and deletes until the signal; resolves with the keys touched. */
async function changeAtRandom(random: () => number, signal: AbortSignal): Promise<Set<string>> {
  const changed = new Set<string>()
  const existing = new Set((await present(kube, configMaps)).keys())
  for (let step = 0; !signal.aborted; step++) {
    const name = `c${Math.floor(random() * OBJECTS)}`
    const key = `default.${name}`
    changed.add(key)
    if (!existing.has(key)) {
      await kube.create(configMapPath(), configMap(name, `${step}`))
      existing.add(key)
    } else if (random() < 0.3) {
      await kube.delete(configMapPath(name))
      existing.delete(key)
    } else await writeConfigMap(kube, name, `${step}`)
    await sleep(random() * 5)
  }
  return changed
}

async function kill({ child }: { child: ChildProcess }): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exited = once(child, 'exit')
  child.kill('SIGKILL')
  await exited
}
