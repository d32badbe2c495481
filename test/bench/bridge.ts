import { randomUUID } from 'node:crypto'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { objectFilter } from '#events'
import { createKubeClient, loadKubeConfig, resourcePath } from '#kube'
import { connectJetStream, follow, type StoredMessage } from '#nats'
import { RECONCILERS } from '#spec'
import { type FairleadProcess, fairlead, startFairlead } from '../support/fairlead.ts'
import { goProgram } from '../support/go-program.ts'
import { startTestCluster } from '../support/servers.ts'
import { Arrivals, delaysOf, HOT_NAMESPACE, hotName, steadyChanges, throughApiServer, timed } from './bridge-changes.ts'
import { CONFIG_MAPS, configMapsIn, cpuOf, fillConfigMaps, Informer, memoryOf, reconcile } from './bridge-support.ts'
import { median, percentiles } from './median.ts'

/**
 * `npm run bench bridge -- [--objects 100000] [--bytes 3072] [--seconds 60] [--rate 1000] [--resources 200]`: what the
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
const CALM_RATE = 50
const RESOURCES = Number(values.resources)
const SERVICE_ACCOUNTS = { group: '', version: 'v1', resource: 'serviceaccounts', kind: 'ServiceAccount' }
const HOT = 200
const CLIENT_NODE = fileURLToPath(new URL('./client-node-informer.ts', import.meta.url))

/** Rows of measurements that only the bridge has, and of those that all three have. */
const alone: string[][] = []
const compared: string[][] = []
function row(rows: string[][], ...cells: string[]): void {
  rows.push(cells)
  console.log(cells.join(' | '))
}

await using cluster = await startTestCluster({ nats: true })
const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'debug' }
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'bench' })
await fairlead(['install', '--builtin', 'all'], env)
await kube.delete(resourcePath(RECONCILERS, undefined, 'at')).catch(() => undefined)
const js = await connectJetStream({ servers: env.NATS_URL, name: 'bench' })

const filling = performance.now()
await fillConfigMaps(await configMapsIn(cluster.dir), OBJECTS, Number(values.bytes))
console.log(`${OBJECTS} ConfigMaps are in etcd after ${seconds(filling)} s`)
const account = (name: string) => ({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name } })
await kube.create(resourcePath(SERVICE_ACCOUNTS, 'default'), account('edited'))
await kube.create('/api/v1/namespaces', { metadata: { name: HOT_NAMESPACE } })
for (let number = 0; number < HOT; number++) await throughApiServer(kube)(hotName(number), '')
const listing = performance.now()
let listed = 0
for await (const { items } of kube.list(resourcePath(CONFIG_MAPS))) listed += items.length
row(alone, `listing ${listed} objects of ${values.bytes} bytes in pages of 500, nothing else, s`, seconds(listing))

const known: string[] = []
const memory: string[] = []
await reconcile(kube, 'accounts', SERVICE_ACCOUNTS)
{
  await using bridge = startFairlead(['bridge'], env)
  await listedBy(bridge, 'serviceaccounts.v1')
  await editAccount()
  const quiet = await edits(() => false)
  row(alone, 'an edit, sent → answer of the API server, quiet, p50 / p99 ms', percentiles(quiet.answered))
  row(alone, 'an edit, sent → in the stream, quiet', percentiles(quiet.streamed))
  const before = cpuOf(bridge.pid)
  await sleep(5000)
  row(alone, 'processor time of 5 s with two quiet watches, ms', ((cpuOf(bridge.pid) - before) * 1000).toFixed(0))
  const began = performance.now()
  await reconcile(kube, 'maps', CONFIG_MAPS)
  let isListed = false
  const done = listedBy(bridge, 'configmaps.v1').then(() => {
    isListed = true
    row(alone, `${listed} objects known, while another resource is edited all the time, s`, seconds(began))
  })
  const meanwhile = await edits(() => isListed, 100_000)
  await done
  row(alone, 'an edit of another resource during the list, sent → answer', percentiles(meanwhile.answered))
  row(alone, 'an edit of another resource during the list, sent → in the stream', percentiles(meanwhile.streamed))
  const times = (way: 'answered' | 'streamed') => (median(meanwhile[way]) / median(quiet[way])).toFixed(1)
  row(
    alone,
    'how many times as long: the answer / in the stream (goal: less than 2)',
    `${times('answered')} / ${times('streamed')}`,
  )
}
{
  const began = performance.now()
  await using bridge = startFairlead(['--prefix', 'alone', 'bridge'], env)
  await listedBy(bridge, 'configmaps.v1')
  known.push(seconds(began))
  memory.push(`${memoryOf(bridge.pid).peak} at its highest`)
}
{
  const began = performance.now()
  await using bridge = startFairlead(['bridge'], env)
  await bridge.logged(({ msg }) => msg === 'started')
  const started = seconds(began)
  await changeSeen(async () => void (await editAccount()))
  row(alone, 'start with a valid cursor: connected / first change in the stream, s', `${started} / ${seconds(began)}`)
  const informers = [
    new Informer(await goProgram('informer'), [], cluster.kubeconfig),
    new Informer(process.execPath, [CLIENT_NODE], cluster.kubeconfig),
  ]
  for (const informer of informers) {
    known.push(((await informer.synced()).syncedMs / 1000).toFixed(1))
    memory.push(`${memoryOf(informer.pid).now}`)
  }
  row(compared, `${listed} objects known, s`, ...known)
  row(compared, 'memory then, MiB', ...memory)
  await sustained(bridge, informers, CALM_RATE, Math.min(20, SECONDS))
  await sustained(bridge, informers, RATE, SECONDS)
  row(compared, 'memory at the end, MiB', ...[bridge, ...informers].map(({ pid }) => String(memoryOf(pid).now)))
  for (const informer of informers) await informer[Symbol.asyncDispose]()
}
if (RESOURCES > 0) await manyResources()

console.log(`\n${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}\n`)
console.log(markdown(['', ''], alone))
console.log(markdown(['', 'bridge', 'client-go informer', '@kubernetes/client-node informer'], compared))
await js.close()

function markdown(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.join(' | ')} |\n`
  return [head, head.map(() => '---'), ...rows].map(line).join('')
}

function seconds(since: number): string {
  return ((performance.now() - since) / 1000).toFixed(1)
}

function listedBy(bridge: FairleadProcess, resource: string) {
  return bridge.logged(({ msg, ...line }) => msg === 'listed' && line['resource'] === resource)
}

function editAccount(mark = randomUUID()): Promise<unknown> {
  const patch = { metadata: { annotations: { 'bench/edit': mark } } }
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

/** Milliseconds from sending a change, one after the other: to the answer of the API server, and to the event. */
async function edits(isOver: () => boolean, atMost = 200): Promise<{ answered: number[]; streamed: number[] }> {
  const stop = new AbortController()
  const filter = objectFilter({ ref: SERVICE_ACCOUNTS, namespace: 'default', name: 'edited' })
  const messages = follow(js, 'EVENTS', [filter], stop.signal)[Symbol.asyncIterator]()
  await messages.next()
  const answered: number[] = []
  const streamed: number[] = []
  while (!isOver() && streamed.length < atMost) {
    const sent = performance.now()
    const note = (times: number[]) => () => times.push(performance.now() - sent)
    const mark = randomUUID()
    await Promise.all([editAccount(mark).then(note(answered)), passed(messages, mark).then(note(streamed))])
    await sleep(20)
  }
  stop.abort()
  return { answered, streamed }
}

/** One that was stored late, of an edit before, is not taken for it. */
async function passed(messages: AsyncIterator<StoredMessage>, mark: string): Promise<void> {
  for (let next = await messages.next(); !next.done; next = await messages.next())
    if (Buffer.from(next.value.data).includes(mark)) return
}

/** Changes at a steady rate; each carries when it was sent. */
async function sustained(bridge: FairleadProcess, informers: Informer[], rate: number, length: number): Promise<void> {
  const processes = [bridge, ...informers]
  await using arrivals = new Arrivals(js)
  const { change, takeAnswers, delaysAfter } = timed(throughApiServer(kube))
  for (const informer of informers) await informer.delays()
  const cpuBefore = processes.map(({ pid }) => cpuOf(pid))
  let sent = 0
  for await (sent of steadyChanges(change, { rate, seconds: length, objects: HOT }));
  await sleep(2000)
  const cpu = processes.map(({ pid }, index) => (cpuOf(pid) - (cpuBefore[index] ?? 0)) / (sent / 1000))
  const arrived = arrivals.take()
  const delays = [delaysOf(arrived), ...(await Promise.all(informers.map((informer) => informer.delays())))]
  const taken = `${(sent / length).toFixed(0)} changes/s (${rate} asked for)`
  row(alone, `${taken}: sent → answer of the API server, p50 / p99 ms`, percentiles(takeAnswers()))
  row(alone, `${taken}: answer of the API server → stream, p50 / p99 ms`, percentiles(delaysAfter(arrived)))
  row(compared, `${taken}: seen of ${sent}`, ...delays.map((list) => String(list.length)))
  row(compared, `${taken}: sent → stream or handler, p50 / p99 ms`, ...delays.map(percentiles))
  row(compared, `${taken}: processor time per 1,000, s`, ...cpu.map((perThousand) => perThousand.toFixed(2)))
}

/** As many resources, each asked for in 50 namespaces: requests of the first half minute. */
async function manyResources(): Promise<void> {
  const namespaces = Array.from({ length: 50 }, (_, index) => `ns-${index}`)
  const kinds = Array.from({ length: RESOURCES }, (_, index) => `thing${index}`)
  for (const kind of kinds)
    await kube.create('/apis/apiextensions.k8s.io/v1/customresourcedefinitions', definition(kind))
  for (const kind of kinds)
    await reconcile(kube, kind, { group: 'bench.dev', version: 'v1', resource: `${kind}s`, kind }, { namespaces })
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
  const count = (method: string) =>
    [...text.matchAll(/^rest_client_requests_total\{(.*)\} (\d+)$/gm)]
      .filter(([, labels]) => labels?.includes(`method="${method}"`))
      .reduce((sum, [, , number]) => sum + Number(number), 0)
  row(
    alone,
    `${RESOURCES} resources × 50 namespaces: ready after s / GET (lists, watches, discovery), PATCH (conditions) until then / RSS MiB`,
    `${ready} / ${count('GET')}, ${count('PATCH')} / ${memoryOf(bridge.pid).now}`,
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
