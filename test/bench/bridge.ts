import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { RECONCILERS, type ResourceRef } from '#contracts'
import { objectFilter } from '#events'
import { connectJetStream, follow, type JetStream } from '#jetstream'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { type FairleadProcess, fairlead, startFairlead } from '../support/fairlead.ts'
import { goProgram } from '../support/go-program.ts'
import { startTestCluster } from '../support/servers.ts'
import { cpuOf, fillConfigMaps, Informer, memoryOf, percentiles } from './bridge-support.ts'

/**
 * `npm run bench:bridge -- [--objects 100000] [--bytes 3072] [--seconds 60] [--rate 1000] [--resources 200]`: what the
 * bridge costs and how fast it is, beside two informers that do nothing, on a real API server and nats-server.
 */
const { values } = parseArgs({
  options: {
    objects: { type: 'string', default: '100000' },
    bytes: { type: 'string', default: '3072' },
    seconds: { type: 'string', default: '60' },
    rate: { type: 'string', default: '1000' },
    resources: { type: 'string', default: '200' },
  },
})
const OBJECTS = Number(values.objects)
const SECONDS = Number(values.seconds)
const RATE = Number(values.rate)
const RESOURCES = Number(values.resources)
const CONFIG_MAPS = { group: '', version: 'v1', resource: 'configmaps', kind: 'ConfigMap' }
const SERVICE_ACCOUNTS = { group: '', version: 'v1', resource: 'serviceaccounts', kind: 'ServiceAccount' }
const HOT = 200
/** Of what changes at a steady rate. */
const HOT_NAMESPACE = 'hot'
const CLIENT_NODE = fileURLToPath(new URL('./client-node-informer.ts', import.meta.url))

const table: { what: string; value: string }[] = []
function row(what: string, value: string): void {
  table.push({ what, value })
  console.log(`${what}: ${value}`)
}

await using cluster = await startTestCluster({ nats: true })
const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info' }
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'bench' })
await fairlead(['install'], env)
await kube.delete(resourcePath(RECONCILERS, undefined, 'at')).catch(() => undefined)
const js = await connectJetStream({ servers: env.NATS_URL, name: 'bench' })

const filling = performance.now()
await fillConfigMaps(cluster.dir, OBJECTS, Number(values.bytes))
console.log(`${OBJECTS} ConfigMaps are in etcd after ${seconds(filling)} s`)
const account = (name: string) => ({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name } })
await kube.create(resourcePath(SERVICE_ACCOUNTS, 'default'), account('edited'))
await kube.create('/api/v1/namespaces', { metadata: { name: HOT_NAMESPACE } })
const listing = performance.now()
let listed = 0
for await (const { items } of kube.list(resourcePath(CONFIG_MAPS))) listed += items.length
const listSeconds = (performance.now() - listing) / 1000
row(`listing ${listed} objects in pages of 500, nothing else, s`, listSeconds.toFixed(1))

await reconcile('accounts', SERVICE_ACCOUNTS)
{
  await using bridge = startFairlead(['bridge'], env)
  await listedBy(bridge, 'serviceaccounts.v1')
  await editAccount()
  row('edit → stream, quiet, p50 / p99 ms', percentiles(await edits(() => false)))
  const before = cpuOf(bridge.pid)
  await sleep(5000)
  row('processor time of 5 s with two quiet watches, ms', ((cpuOf(bridge.pid) - before) * 1000).toFixed(0))
  const began = performance.now()
  await reconcile('maps', CONFIG_MAPS)
  let isListed = false
  const done = listedBy(bridge, 'configmaps.v1').then((line) => {
    isListed = true
    return line
  })
  row('edit → stream of another resource meanwhile, p50 / p99 ms', percentiles(await edits(() => isListed, 100_000)))
  const line = await done
  row(`${String(line['objects'])} objects caught up, s (goal: listing + 20)`, seconds(began))
  const { now, peak } = memoryOf(bridge.pid)
  row('RSS of the bridge then / at its highest, MiB', `${now} / ${peak}`)
}
{
  const began = performance.now()
  await using bridge = startFairlead(['bridge'], { ...env, LOG_LEVEL: 'debug' })
  await bridge.logged(({ msg }) => msg === 'started')
  const started = seconds(began)
  await editAccount()
  await changeSeen(async () => void (await editAccount()))
  row('start with a valid cursor: connected / first change in the stream, s', `${started} / ${seconds(began)}`)
  const informers = [
    {
      name: '@kubernetes/client-node',
      informer: new Informer(process.execPath, [CLIENT_NODE], cluster.kubeconfig),
    },
    { name: 'client-go', informer: new Informer(await goProgram('informer'), [], cluster.kubeconfig) },
  ]
  for (const { name, informer } of informers) {
    const { syncedMs, objects } = await informer.synced()
    row(
      `informer of ${name}: ${objects} objects, s / MiB`,
      `${(syncedMs / 1000).toFixed(1)} / ${memoryOf(informer.pid).now}`,
    )
  }
  await sustained(bridge, informers)
  for (const { informer } of informers) await informer[Symbol.asyncDispose]()
}
if (RESOURCES > 0) await manyResources()

console.log(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}`)
console.table(table)
await js.close()

function seconds(since: number): string {
  return ((performance.now() - since) / 1000).toFixed(1)
}

async function reconcile(name: string, primary: ResourceRef & { kind: string }, more: object = {}): Promise<void> {
  await kube.create(resourcePath(RECONCILERS), {
    apiVersion: 'fairlead.dev/v1alpha1',
    kind: 'Reconciler',
    metadata: { name },
    spec: { for: { ...primary, ...more }, invoke: { pull: {} } },
  })
}

function listedBy(bridge: FairleadProcess, resource: string) {
  return bridge.logged(({ msg, ...line }) => msg === 'listed' && line['resource'] === resource)
}

function editAccount(): Promise<unknown> {
  const patch = { metadata: { annotations: { 'bench/sent': `${performance.timeOrigin + performance.now()}` } } }
  return kube.patch(resourcePath(SERVICE_ACCOUNTS, 'default', 'edited'), patch, 'merge')
}

/** When the server has stored the next change of the edited account. */
async function changeSeen(act: () => Promise<void>): Promise<Date> {
  const stop = new AbortController()
  const filter = objectFilter({ ref: SERVICE_ACCOUNTS, namespace: 'default', name: 'edited' })
  const messages = follow(js, 'EVENTS', [filter], stop.signal)[Symbol.asyncIterator]()
  await messages.next()
  await act()
  const { value } = await messages.next()
  stop.abort()
  return value?.storedAt ?? new Date()
}

/** Milliseconds from the answer of the API server to the event in the stream. */
async function edits(isOver: () => boolean, atMost = 200): Promise<number[]> {
  const stop = new AbortController()
  const filter = objectFilter({ ref: SERVICE_ACCOUNTS, namespace: 'default', name: 'edited' })
  const messages = follow(js, 'EVENTS', [filter], stop.signal)[Symbol.asyncIterator]()
  await messages.next()
  const times: number[] = []
  while (!isOver() && times.length < atMost) {
    const sent = performance.now()
    const [acknowledged] = await Promise.all([editAccount().then(() => performance.now()), messages.next()])
    times.push(performance.now() - Math.max(sent, acknowledged))
    await sleep(20)
  }
  stop.abort()
  return times
}

/** Changes at a steady rate; each carries when it was sent. */
async function sustained(bridge: FairleadProcess, informers: { name: string; informer: Informer }[]): Promise<void> {
  const streamed: number[] = []
  const stop = new AbortController()
  const following = followChanges(js, stop.signal, streamed)
  const cpu = [bridge.pid, ...informers.map(({ informer }) => informer.pid)]
  const cpuBefore = cpu.map(cpuOf)
  const began = performance.now()
  const windows: string[] = []
  let sent = 0
  let inFlight = 0
  for (let second = 0; second < SECONDS; second++) {
    const until = began + (second + 1) * 1000
    const due = (second + 1) * RATE
    while (performance.now() < until) {
      while (sent < due && inFlight < 64 && sent < ((performance.now() - began) / 1000) * RATE) {
        inFlight++
        void touch(kube, sent++ % HOT).finally(() => inFlight--)
      }
      await sleep(2)
    }
    if ((second + 1) % Math.ceil(SECONDS / 6) === 0) windows.push(percentiles(streamed.splice(0)))
  }
  const rate = sent / ((performance.now() - began) / 1000)
  await sleep(2000)
  const [bridgeCpu, ...others] = cpu.map((pid, index) => (cpuOf(pid) - (cpuBefore[index] ?? 0)) / (sent / 1000))
  stop.abort()
  await following
  row(`${rate.toFixed(0)} changes/s for ${SECONDS} s: sent → stream, six windows, p50 / p99 ms`, windows.join(', '))
  row(
    'the same: processor time of the bridge per 1,000 changes, s; RSS, MiB',
    `${bridgeCpu?.toFixed(2)}; ${memoryOf(bridge.pid).now}`,
  )
  for (const [index, { name, informer }] of informers.entries()) {
    const delays = await informer.delays()
    row(
      `the same: sent → handler of ${name}, p50 / p99 ms; processor time per 1,000, s; RSS, MiB`,
      `${percentiles(delays)} (${delays.length} of ${sent}); ${others[index]?.toFixed(2)}; ${memoryOf(informer.pid).now}`,
    )
  }
}

async function followChanges(stream: JetStream, signal: AbortSignal, times: number[]): Promise<void> {
  const filter = objectFilter({ ref: CONFIG_MAPS, namespace: HOT_NAMESPACE })
  const began = new Date()
  for await (const { data } of follow(stream, 'EVENTS', [filter], signal)) {
    const event = JSON.parse(Buffer.from(data).toString()) as { metadata: { annotations?: Record<string, string> } }
    const sent = Number(event.metadata.annotations?.['bench/sent'])
    if (sent > began.getTime()) times.push(performance.timeOrigin + performance.now() - sent)
  }
}

async function touch(client: KubeClient, number: number): Promise<void> {
  const sent = `${performance.timeOrigin + performance.now()}`
  const name = `hot-${number}`
  const object = {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name, namespace: HOT_NAMESPACE, annotations: { 'bench/sent': sent } },
  }
  await client
    .replace(resourcePath(CONFIG_MAPS, HOT_NAMESPACE, name), object)
    .catch(() => client.create(resourcePath(CONFIG_MAPS, HOT_NAMESPACE), object).catch(() => undefined))
}

/** As many resources, each asked for in 50 namespaces: requests of the first half minute. */
async function manyResources(): Promise<void> {
  const namespaces = Array.from({ length: 50 }, (_, index) => `ns-${index}`)
  const kinds = Array.from({ length: RESOURCES }, (_, index) => `thing${index}`)
  for (const kind of kinds)
    await kube.create('/apis/apiextensions.k8s.io/v1/customresourcedefinitions', definition(kind))
  for (const kind of kinds)
    await reconcile(kind, { group: 'bench.dev', version: 'v1', resource: `${kind}s`, kind }, { namespaces })
  const began = performance.now()
  const listen = '127.0.0.1:18099'
  await using bridge = startFairlead(['bridge', '--listen', listen], env)
  await bridge.logged(({ msg }) => msg === 'started')
  let isReady = false
  while (!isReady) {
    await sleep(200)
    isReady = await fetch(`http://${listen}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    )
  }
  const ready = seconds(began)
  const text = await (await fetch(`http://${listen}/metrics`)).text()
  const requests = [...text.matchAll(/^rest_client_requests_total\{.*\} (\d+)$/gm)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  )
  row(
    `${RESOURCES} resources × 50 namespaces: ready after s / requests until then / RSS MiB`,
    `${ready} / ${requests} / ${memoryOf(bridge.pid).now}`,
  )
}

function definition(kind: string) {
  return {
    metadata: { name: `${kind}s.bench.dev` },
    spec: {
      group: 'bench.dev',
      names: { kind, plural: `${kind}s`, singular: kind, listKind: `${kind}List` },
      scope: 'Namespaced',
      versions: [
        {
          name: 'v1',
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
        },
      ],
    },
  }
}
