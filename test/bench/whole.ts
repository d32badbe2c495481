import { spawnSync } from 'node:child_process'
import { cpus } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import type { KubeObject } from '#contracts'
import { At } from '#functions/at'
import { createKubeClient, type KubeClient, loadKubeConfig, resourcePath } from '#kube'
import { Deployment } from '#sdk'
import { fairlead, startFairlead } from '../support/fairlead.ts'
import { startTestCluster } from '../support/servers.ts'
import { residentMiBOf } from '../support/usage.ts'
import { median, percentiles } from './median.ts'
import { Memcached, memcached } from './memcached.ts'
import { requestsTo } from './requests.ts'

/** `node test/bench/whole.ts [Ats]`: what the whole costs on this machine, on a real API server and nats-server. */
const ATS = Number(process.argv[2] ?? 10_000)
const EDITS = 200
const FUNCTIONS = ['--function', 'functions/at/index.ts', '--function', 'test/bench/memcached.ts']
const NAMESPACE = 'default'

const table: { what: string; value: string }[] = []
const row = (what: string, value: string) => table.push({ what, value })

row('import of a function (At with the author’s kit), ms', median(importTimes("import('#functions/at')")).toFixed(0))
row('import of nothing (Node.js itself), ms', median(importTimes('0')).toFixed(0))

await using cluster = await startTestCluster({ nats: true })
const env = { KUBECONFIG: cluster.kubeconfig, NATS_URL: cluster.nats?.url ?? '', LOG_LEVEL: 'info' }
await fairlead(['install', ...FUNCTIONS], env)
await using kube = createKubeClient({ ...(await loadKubeConfig({ paths: [cluster.kubeconfig] })), userAgent: 'bench' })

const started = performance.now()
await using up = startFairlead(['up', ...FUNCTIONS], env)
await up.logged(({ msg }) => msg === 'started')
row('start of fairlead up until connected, ms', (performance.now() - started).toFixed(0))
const beforeEdits = await requestsTo(kube)
row('edit acknowledged → Deployment seen, p50 / p99 ms', percentiles(await edits(kube)))
await sleep(5000)
row('API requests per edit, without the edit itself', (((await requestsTo(kube)) - beforeEdits) / EDITS - 1).toFixed(2))
const idle = residentMiBOf(up.pid)
row('RSS of fairlead up, idle, MiB', idle.toFixed(0))
const seconds = await waitingAts(kube)
row(`${ATS} Ats of the year 2099: created and all PENDING, s`, seconds.toFixed(1))
const untilPending = (await requestsTo(kube, 'ats', 'PATCH')) / ATS
const beforeIdling = await requestsTo(kube)
await sleep(20_000)
row('API requests per At until it is PENDING', untilPending.toFixed(2))
row(`API requests in 20 s with ${ATS} waiting Ats, but for watches`, String((await requestsTo(kube)) - beforeIdling))
row(`RSS of fairlead up with ${ATS} waiting Ats, MiB`, residentMiBOf(up.pid).toFixed(0))
const again = startFairlead(['up', ...FUNCTIONS], env)
await again.logged(({ msg }) => msg === 'started')
await sleep(20_000)
row(`RSS of another one that was started then, MiB`, residentMiBOf(again.pid).toFixed(0))
await again[Symbol.asyncDispose]()

console.log(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}`)
console.table(table)

function importTimes(code: string): number[] {
  return Array.from({ length: 7 }, () => {
    const began = performance.now()
    spawnSync(process.execPath, ['--input-type=module', '-e', `await ${code}`])
    return performance.now() - began
  })
}

/** One edit after the other, on an idle machine. */
async function edits(client: KubeClient): Promise<number[]> {
  const path = resourcePath(memcached.for, NAMESPACE, 'bench')
  await client.create(
    resourcePath(memcached.for, NAMESPACE),
    Memcached.of({ metadata: { name: 'bench' }, spec: { size: 0 } }),
  )
  const stop = new AbortController()
  const changes = client.watch<KubeObject & { spec: { replicas: number } }>(resourcePath(Deployment, NAMESPACE), {
    signal: stop.signal,
  })
  const times: number[] = []
  const untilSize = async (size: number) => {
    for (;;) {
      const { value } = await changes.next()
      if (value === undefined) throw new Error('the watch ended')
      if (value.type !== 'BOOKMARK' && value.object.spec.replicas === size) return performance.now()
    }
  }
  await untilSize(0)
  for (let size = 1; size <= EDITS; size++) {
    await client.patch(path, { spec: { size } }, 'merge')
    const acknowledged = performance.now()
    times.push((await untilSize(size)) - acknowledged)
    await sleep(50)
  }
  stop.abort()
  return times
}

async function waitingAts(client: KubeClient): Promise<number> {
  const began = performance.now()
  let next = 0
  const spec = { schedule: '2099-01-01T00:00:00Z', command: 'echo YAY' }
  const create = async () => {
    while (next < ATS)
      await client.create(resourcePath(At, NAMESPACE), At.of({ metadata: { name: `at-${next++}` }, spec }))
  }
  await Promise.all(Array.from({ length: 16 }, create))
  while ((await pending(client)) < ATS) await sleep(500)
  return (performance.now() - began) / 1000
}

async function pending(client: KubeClient): Promise<number> {
  let count = 0
  for await (const { items } of client.list<KubeObject & { status?: { phase?: string } }>(resourcePath(At, NAMESPACE)))
    count += items.filter(({ status }) => status?.phase === 'PENDING').length
  return count
}
